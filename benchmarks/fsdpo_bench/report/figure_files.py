"""Figures of matplotlib as SVG files that follow the colour scheme of the reader."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Style that follows the colour scheme of the reader. Filters keep the hue of each colour.
DARK_STYLE = "@media (prefers-color-scheme: dark){svg{filter: invert(0.91) hue-rotate(180deg)}}"
_STYLE_END = "</style>"


def save_figure(figure: Figure, file: Path) -> None:
    """Write a figure as SVG that is dark in a dark colour scheme."""
    figure.savefig(file, metadata={"Date": None})
    svg = file.read_text(encoding="utf-8")
    file.write_text(add_dark_style(svg), encoding="utf-8", newline="")


def add_dark_style(svg: str) -> str:
    """Return an SVG of matplotlib with the style for a dark colour scheme, once."""
    if DARK_STYLE in svg:
        return svg
    return svg.replace(_STYLE_END, f"{DARK_STYLE}{_STYLE_END}", 1)
