"""The study as pictures, one a question.

On white, with shapes or numbers beside colours, they read alike on any page and in print.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measure import Rows

RATES = "Does it tolerate larger steps?"
SIZES = "Is it another answer with more problems, or a larger policy?"
#: Colours that differ in lightness too (Okabe & Ito), each with a shape of its own.
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#777777")
SHAPES = "osD^vPX*"
#: Text stays text, and the same numbers give the same file.
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "study", "font.size": 9, "axes.axisbelow": True}


def write_contrasts(file: Path, title: str, arms: Sequence[str], final: Rows, found: Rows) -> None:
    """Draw of each arm avg@k, and beside it how far it is ahead of the first one."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 1.3 + 0.36 * len(arms)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        level = [r for r in final if (r["problems"], r["measure"]) == ("solve", "sampled")]
        for place, rows, name in ((left, level, "value"), (right, found, "ahead")):
            for row in rows:
                if row["arm"] in arms:
                    at = arms.index(str(row["arm"]))
                    _interval(place, row, name, at, at)
        left.set_yticks(range(len(arms)), arms)
        left.axvline(float(str(level[0]["value"])), color="#555555", linewidth=1, linestyle=":")
        left.set(xlabel="avg@k, test problems (%); dotted: SFT", xlim=(0, None))
        left.set_ylim(len(arms) - 0.5, -0.5)
        right.axvline(0, color="#555555", linewidth=1, linestyle="--")
        right.set(xlabel=f"ahead of {arms[0]} (points)")
        figure.suptitle(title, fontweight="bold")
        for place in (left, right):
            place.grid(axis="x", color="#dddddd")
        figure.savefig(file, metadata={"Date": None})


def write_sizes(file: Path, by_size: Mapping[str, Rows]) -> None:
    """Draw how far arms are ahead of others, where a comparison was made at every size."""
    pairs = [[(row["arm"], row["against"]) for row in rows] for rows in by_size.values()]
    shown = [each for each in dict.fromkeys(pairs[0]) if all(each in some for some in pairs)]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 1.3 + 0.26 * len(by_size) * len(shown)), layout="constrained")
        place = figure.subplots()
        for nth, (size, rows) in enumerate(by_size.items()):
            for row in rows:
                if (each := (row["arm"], row["against"])) in shown:
                    at = shown.index(each) + (nth + 0.5) / (len(by_size) + 0.5) - 0.5
                    _interval(place, row, "ahead", at, nth, size if each == shown[0] else None)
        place.set_yticks(range(len(shown)), [f"{arm}\nagainst {other}" for arm, other in shown])
        place.set_ylim(len(shown) - 0.5, -0.5)
        place.axvline(0, color="#555555", linewidth=1, linestyle="--")
        place.set_xlabel("ahead in avg@k, test problems (points)")
        place.grid(axis="x", color="#dddddd")
        figure.legend(loc="outside lower center", ncols=len(by_size))
        figure.suptitle(SIZES, fontweight="bold")
        figure.savefig(file, metadata={"Date": None})


def _interval(
    place: Axes, row: dict[str, object], name: str, at: float, style: int, label: str | None = None
) -> None:
    value, low, high = (float(str(row[f"{name}{end}"])) for end in ("", " low", " high"))
    ends = [[value - low], [high - value]]
    colour, shape = COLOURS[style % len(COLOURS)], SHAPES[style % len(SHAPES)]
    place.errorbar(value, at, xerr=ends, fmt=shape, color=colour, capsize=3, label=label)
    place.annotate(f"{value:.1f}", (value, at), (0, 5), textcoords="offset points", ha="center")


def write_rates(file: Path, arms: Sequence[str], swept: Rows) -> None:
    """Tell what every setting made of every arm; a cross is beside those that collapsed."""
    rows = swept[1:]  # the first is the SFT policy
    settings = list(dict.fromkeys(f"{row['lr']}\nβ {row['beta']}" for row in rows))
    value_AS = np.array([float(str(row["value"])) for row in rows]).reshape(len(arms), -1)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 1.5 + 0.3 * len(arms)), layout="constrained")
        place = figure.subplots()
        image = place.imshow(value_AS, cmap="Greys", vmin=0, vmax=100, aspect="auto")
        for at, row in enumerate(rows):
            y, x = divmod(at, len(settings))
            told = f"{value_AS[y, x]:.0f}{' ×' if row['collapsed'] else ''}"
            colour = "white" if value_AS[y, x] > 55 else "black"
            place.annotate(told, (x, y), color=colour, ha="center", va="center")
        place.set_xticks(range(len(settings)), settings)
        place.set_yticks(range(len(arms)), arms)
        place.set_xlabel("peak learning rate and β (×: below the SFT policy)")
        figure.colorbar(image, label="avg@k, validation problems (%)")
        figure.suptitle(RATES, fontweight="bold")
        figure.savefig(file, metadata={"Date": None})
