"""The figures of the study, one per question.

They have a shape or a number next to each colour, so they read the same in print. A dark colour
scheme inverts their lightness and keeps their hues. A marker is filled if the difference is
significant after the correction. The grey band is the margin of equivalence.
"""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

import matplotlib
import numpy as np
from fsdpo_bench.report.figure_files import save_figure
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measure import Rows
from plan import EQUIVALENCE_MARGIN, SIGNIFICANT_VERDICTS

#: Colours that also differ in lightness (Okabe & Ito), each with a marker of its own.
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#777777")
MARKERS = "osD^vPX*"
MAX_TITLE_CHARS = 80  #: Longer titles have several lines.
#: Text stays text, and equal numbers give equal files.
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "study", "font.size": 9, "axes.axisbelow": True}


def write_contrasts(
    file: Path, title: str, arms: Sequence[str], final: Rows, contrasts: Rows, metric: str
) -> None:
    """Draw the accuracy of each arm, and its difference from the first arm.

    Args:
        file: The SVG file.
        title: The answer to the question, as a sentence.
        arms: Names of the arms; the first is the baseline.
        final: Rows of ``final.csv``.
        contrasts: Rows of ``contrasts.csv`` for the question.
        metric: Name of the accuracy, such as "avg@2".
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 1.3 + 0.36 * len(arms)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        levels = [r for r in final if (r["problems"], r["measure"]) == ("solve", "sampled")]
        for axes, rows, column in ((left, levels, "value"), (right, contrasts, "ahead")):
            for row in rows:
                if row["arm"] in arms:
                    index = arms.index(str(row["arm"]))
                    _draw_interval(axes, row, column, y=index, style=index)
        left.set_yticks(range(len(arms)), arms)
        left.axvline(float(str(levels[0]["value"])), color="#555555", linewidth=1, linestyle=":")
        left.set(xlabel=f"{metric}, test problems (%); dotted: SFT", xlim=(0, None))
        left.set_ylim(len(arms) - 0.5, -0.5)
        _draw_margin(right)
        right.set(xlabel=f"difference to {arms[0]} (points); filled: significant")
        figure.suptitle(_wrap(title), fontweight="bold")
        for axes in (left, right):
            axes.grid(axis="x", color="#dddddd")
        save_figure(figure, file)


def _wrap(title: str) -> str:
    return fill(title, MAX_TITLE_CHARS, break_on_hyphens=False)


def _draw_margin(axes: Axes) -> None:
    """Draw a line at no difference, and the margin of equivalence around the line."""
    axes.axvspan(-EQUIVALENCE_MARGIN, EQUIVALENCE_MARGIN, color="#eeeeee", zorder=0)
    axes.axvline(0, color="#555555", linewidth=1, linestyle="--")


def _draw_interval(
    axes: Axes,
    row: dict[str, object],
    column: str,
    *,
    y: float,
    style: int,
    label: str | None = None,
) -> None:
    """Draw one value with its interval; ``style`` selects colour and marker."""
    value, low, high = (float(str(row[f"{column}{end}"])) for end in ("", " low", " high"))
    is_filled = row.get("verdict", SIGNIFICANT_VERDICTS[0]) in SIGNIFICANT_VERDICTS
    axes.errorbar(
        value,
        y,
        xerr=[[value - low], [high - value]],
        fmt=MARKERS[style % len(MARKERS)],
        color=COLOURS[style % len(COLOURS)],
        markerfacecolor=None if is_filled else "white",
        capsize=3,
        label=label,
    )
    axes.annotate(f"{value:.1f}", (value, y), (0, 5), textcoords="offset points", ha="center")


def write_rates(file: Path, title: str, arms: Sequence[str], swept: Rows, metric: str) -> None:
    """Draw the result of every setting of every arm; a cross marks those that collapsed.

    Args:
        file: The SVG file.
        title: The answer, as a sentence.
        arms: Names of the arms, in the order of the rows.
        swept: Rows of ``sweep.csv``; the first row is the SFT policy.
        metric: Name of the accuracy, such as "avg@1".
    """
    rows = swept[1:]  # The first row is the SFT policy.
    settings = list(dict.fromkeys(f"{row['lr']}\nβ {row['beta']}" for row in rows))
    value_AS = np.array([float(str(row["value"])) for row in rows]).reshape(len(arms), -1)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 1.5 + 0.3 * len(arms)), layout="constrained")
        axes = figure.subplots()
        image = axes.imshow(value_AS, cmap="Greys", vmin=0, vmax=100, aspect="auto")
        for index, row in enumerate(rows):
            y, x = divmod(index, len(settings))
            text = f"{value_AS[y, x]:.0f}{' ×' if row['collapsed'] else ''}"
            colour = "white" if value_AS[y, x] > 55 else "black"
            axes.annotate(text, (x, y), color=colour, ha="center", va="center")
        axes.set_xticks(range(len(settings)), settings)
        axes.set_yticks(range(len(arms)), arms)
        axes.set_xlabel("peak learning rate and β (×: below the SFT policy)")
        figure.colorbar(image, label=f"{metric}, validation problems (%)")
        figure.suptitle(_wrap(title), fontweight="bold")
        save_figure(figure, file)
