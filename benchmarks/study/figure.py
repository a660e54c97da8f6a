"""The study as a picture: gains over the SFT policy, and what learning rate and γ do to them."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measure import Estimate

IN_A_ROW = 3
#: Colours that differ in lightness too (Okabe & Ito).
COLOURS = {"SFT": "#777777", "DPO": "#0072B2", "Step-DPO": "#009E73", "Full-Step-DPO": "#D55E00"}
#: Text stays text, and the same numbers give the same file.
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "study", "font.size": 8, "axes.axisbelow": True}


@dataclass(frozen=True)
class Panel:
    """One diagram."""

    title: str
    axis: str  #: What its points differ by.
    #: Measured values by line and label; all lines have the same labels.
    lines: Mapping[str, Mapping[str, Estimate]]
    joined: bool  #: Whether points are joined: their labels have an order.
    level: tuple[str, float] | None = None


def write_figure(file: Path, panels: Sequence[Panel]) -> None:
    """Draw panels in rows."""
    columns, rows = min(len(panels), IN_A_ROW), -(-len(panels) // IN_A_ROW)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4 * columns, 3.2 * rows), layout="constrained")
        places = figure.subplots(rows, columns, squeeze=False).flatten()
        for place, panel in zip(places, panels, strict=False):
            _draw(place, panel)
        for place in places[len(panels) :]:
            place.set_axis_off()
        figure.savefig(file, metadata={"Date": None})


def _draw(place: Axes, panel: Panel) -> None:
    for number, (name, line) in enumerate(panel.lines.items()):
        # Lines stand a little beside each other, or their intervals would hide each other.
        shift = 0.06 * (number - (len(panel.lines) - 1) / 2)
        if panel.joined:
            x = [at + shift for at in range(len(line))]
            place.plot(x, [each.value for each in line.values()], color=COLOURS[name])
        for at, (point, value) in enumerate(line.items()):
            colour, (mean, low, high) = COLOURS[name or point], astuple(value)
            label = name if panel.joined and not at else None
            ends = [[mean - low], [high - mean]]
            place.errorbar(at + shift, mean, ends, fmt="o", color=colour, label=label)
            if not panel.joined:
                place.text(at + 0.1, mean, f"{mean:.1f}", va="center")
    place.set_title(panel.title, fontweight="bold")
    place.set_xticks(range(len(line)), list(line))
    place.set(xlabel=panel.axis, ylabel="correct (%)", xlim=(-0.5, len(line) - 0.4))
    place.grid(axis="y", color="#dddddd")
    if panel.level:
        place.axhline(panel.level[1], color=COLOURS["SFT"], linestyle="--", label=panel.level[0])
    if panel.joined:
        place.legend()
