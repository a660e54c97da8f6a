"""The study as pictures, one a question.

On white, with shapes and line styles beside colours, they read alike on any page and in print.
"""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measure import Rows

RATES = "Does it tolerate larger steps?"
#: Colours that differ in lightness too (Okabe & Ito), each with a shape and a line of its own.
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#777777")
SHAPES, LINES = "osD^vPX*", ("-", "--", ":")
#: Text stays text, and the same numbers give the same file.
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "study", "font.size": 9, "axes.axisbelow": True}


def write_contrasts(file: Path, title: str, arms: Sequence[str], final: Rows, found: Rows) -> None:
    """Draw of each arm avg@k, and beside it how far it is ahead of the first one."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 1.3 + 0.36 * len(arms)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for at, arm in enumerate(arms):
            for row in final:
                if (row["arm"], row["problems"], row["measure"]) == (arm, "solve", "sampled"):
                    _interval(left, row, "value", at)
            for row in found:
                if row["arm"] == arm:
                    _interval(right, row, "ahead", at)
        left.set_yticks(range(len(arms)), arms)
        left.set(xlabel="avg@k, test problems (%)", ylim=(len(arms) - 0.5, -0.5), xlim=(0, None))
        right.axvline(0, color="#555555", linewidth=1, linestyle="--")
        right.set(xlabel=f"ahead of {arms[0]} (points)")
        figure.suptitle(title, fontweight="bold")
        for place in (left, right):
            place.grid(axis="x", color="#dddddd")
        figure.savefig(file, metadata={"Date": None})


def _interval(place: Axes, row: dict[str, object], name: str, at: int) -> None:
    value, low, high = (float(str(row[f"{name}{end}"])) for end in ("", " low", " high"))
    ends = [[value - low], [high - value]]
    colour, shape = COLOURS[at % len(COLOURS)], SHAPES[at % len(SHAPES)]
    place.errorbar(value, at, xerr=ends, fmt=shape, color=colour, capsize=3)
    place.annotate(f"{value:.1f}", (value, at), (0, 5), textcoords="offset points", ha="center")


def write_rates(file: Path, arms: Sequence[str], swept: Rows) -> None:
    """Draw what the learning rate does to every arm, beside the policy they start from."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 4), layout="constrained")
        place = figure.subplots()
        for at, arm in enumerate(arms):
            rows = [row for row in swept if row["arm"] == arm]
            x, y = ([float(str(row[name])) for row in rows] for name in ("lr", "value"))
            look = SHAPES[at % len(SHAPES)], LINES[at % len(LINES)], COLOURS[at % len(COLOURS)]
            place.plot(x, y, marker=look[0], linestyle=look[1], color=look[2], label=arm)
        level = float(str(swept[0]["value"]))
        place.axhline(level, color="#555555", linewidth=1, label="SFT")
        place.set(xscale="log", xlabel="peak learning rate", ylim=(0, None))
        place.set(ylabel="avg@k, validation problems (%)")
        place.grid(axis="y", color="#dddddd")
        place.set_title(RATES, fontweight="bold")
        figure.legend(loc="outside right upper", frameon=False)
        figure.savefig(file, metadata={"Date": None})
