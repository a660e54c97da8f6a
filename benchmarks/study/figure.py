"""The study as a picture: gains over the SFT policy, and what learning rate and γ do to them.

SVG written by hand, so that it needs nothing installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from measure import Estimate

WIDTH, HEIGHT, MARGIN = 380, 300, 56
IN_A_ROW = 3
INK, GRID = "#333", "#ddd"
#: Colours that differ in lightness too (Okabe & Ito).
COLOURS = {"SFT": "#777777", "DPO": "#0072B2", "Step-DPO": "#009E73", "Full-Step-DPO": "#D55E00"}


@dataclass(frozen=True)
class Point:
    """A measured value at a place along the axis."""

    label: str
    value: Estimate


@dataclass(frozen=True)
class Panel:
    """One diagram.

    Attributes:
        title: What it shows.
        axis: What its points differ by.
        lines: Points of each line, by name; all lines have the same labels.
        joined: Whether points are joined: their labels have an order.
        level: A value to draw as a dashed line, and its name.
    """

    title: str
    axis: str
    lines: Mapping[str, Sequence[Point]]
    joined: bool
    level: tuple[str, float] | None = None


def write_figure(file: Path, panels: Sequence[Panel]) -> None:
    """Draw panels in rows."""
    drawn = [
        f'<g transform="translate({number % IN_A_ROW * WIDTH},{number // IN_A_ROW * HEIGHT})">'
        f"{_panel(panel)}</g>"
        for number, panel in enumerate(panels)
    ]
    rows = -(-len(panels) // IN_A_ROW)
    size = f'width="{WIDTH * min(len(panels), IN_A_ROW)}" height="{HEIGHT * rows}"'
    file.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">\n'
        '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def _panel(panel: Panel) -> str:
    values = [point.value for line in panel.lines.values() for point in line]
    ends = [end for value in values for end in (value.low, value.high)]
    low, high = _rounded_range([*ends, *([panel.level[1]] if panel.level else [])])
    labels = [point.label for point in next(iter(panel.lines.values()))]
    parts = [_text(WIDTH / 2, 20, panel.title, weight="bold"), *_grid(low, high)]
    parts += [
        _text(_x(place, len(labels)), HEIGHT - MARGIN + 16, label)
        for place, label in enumerate(labels)
    ]
    parts.append(_text(WIDTH / 2, HEIGHT - MARGIN + 34, panel.axis))
    if panel.level:
        name, value = panel.level
        y = _y(value, low, high)
        parts.append(_line(MARGIN, y, WIDTH - 12, y, COLOURS["SFT"], dash=True))
        parts.append(_text(WIDTH - 14, y - 4, name, anchor="end"))
    for number, (name, line) in enumerate(panel.lines.items()):
        # Lines stand a little beside each other, or their intervals would hide each other.
        shift = 5 * (number - (len(panel.lines) - 1) / 2) if panel.joined else 0
        parts += _drawn(name, line, low, high, shift, panel.joined)
    if panel.joined:
        parts += _legend(list(panel.lines))
    return "\n".join(parts)


def _drawn(
    name: str, line: Sequence[Point], low: float, high: float, shift: float, joined: bool
) -> list[str]:
    parts, places = [], []
    for place, point in enumerate(line):
        colour = COLOURS.get(name if joined else point.label, INK)
        x, y = _x(place, len(line)) + shift, _y(point.value.value, low, high)
        places.append(f"{x:.1f},{y:.1f}")
        ends = [_y(end, low, high) for end in (point.value.low, point.value.high)]
        parts.append(_line(x, ends[0], x, ends[1], colour))
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>')
        if not joined:
            parts.append(_text(x + 8, y + 4, f"{point.value.value:.1f}", anchor="start"))
    if joined:
        path = " ".join(places)
        parts.insert(
            0, f'<polyline points="{path}" fill="none" stroke="{COLOURS.get(name, INK)}"/>'
        )
    return parts


def _legend(names: Sequence[str]) -> list[str]:
    parts = []
    for number, name in enumerate(names):
        x = MARGIN + 8 + number * 92
        parts.append(f'<circle cx="{x}" cy="34" r="3.5" fill="{COLOURS.get(name, INK)}"/>')
        parts.append(_text(x + 7, 38, name, anchor="start"))
    return parts if len(names) > 1 else []


def _grid(low: float, high: float) -> list[str]:
    parts = []
    step = next(step for step in (1, 2, 5, 10, 20, 50) if (high - low) / step <= 8)
    for tick in range(int(low), int(high) + 1):
        if tick % step == 0:
            y = _y(tick, low, high)
            parts.append(_line(MARGIN, y, WIDTH - 12, y, GRID))
            parts.append(_text(MARGIN - 6, y + 4, f"{tick}", anchor="end"))
    middle = (HEIGHT - MARGIN + 44) / 2
    parts.append(
        f'<text transform="translate(16,{middle}) rotate(-90)" text-anchor="middle" '
        f'fill="{INK}">correct (%)</text>'
    )
    return parts


def _rounded_range(values: Sequence[float]) -> tuple[float, float]:
    return min(values) // 5 * 5, -(-max(values) // 5) * 5


def _x(place: int, count: int) -> float:
    return MARGIN + (place + 0.5) * (WIDTH - 12 - MARGIN) / count


def _y(value: float, low: float, high: float) -> float:
    top, bottom = 48, HEIGHT - MARGIN
    return bottom - (value - low) / (high - low) * (bottom - top)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, dash: bool = False) -> str:
    dashed = ' stroke-dasharray="4 3"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashed}/>'
    )


def _text(x: float, y: float, text: str, anchor: str = "middle", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{INK}">{escape(text)}</text>'
    )
