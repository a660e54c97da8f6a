"""The figures of the study, one per question.

They have a shape or a number next to each colour, so they read the same in print. A dark colour
scheme inverts their lightness and keeps their hues. A marker is filled if the difference is
significant after the correction. The grey band is the margin of equivalence.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill

import matplotlib
import numpy as np
from fsdpo_bench.report.figure_files import save_figure
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measure import Rows
from plan import EQUIVALENCE_MARGIN

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
        right.set(xlabel=f"ahead of {arms[0]} (points); filled: significant")
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


def write_sizes(file: Path, title: str, by_size: Mapping[str, Rows], metric: str) -> None:
    """Draw the differences between arms for the comparisons that every size has.

    Args:
        file: The SVG file.
        title: The answer, as a sentence.
        by_size: Rows of ``contrasts.csv`` by the title of their size.
        metric: Name of the accuracy, such as "avg@2".
    """
    compared = [[(row["arm"], row["against"]) for row in rows] for rows in by_size.values()]
    pairs = [pair for pair in dict.fromkeys(compared[0]) if all(pair in arms for arms in compared)]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 1.3 + 0.26 * len(by_size) * len(pairs)), layout="constrained")
        axes = figure.subplots()
        for size_index, (size, rows) in enumerate(by_size.items()):
            offset = (size_index + 0.5) / (len(by_size) + 0.5) - 0.5
            for row in rows:
                pair = (row["arm"], row["against"])
                if pair in pairs:
                    label = size if pair == pairs[0] else None
                    y = pairs.index(pair) + offset
                    _draw_interval(axes, row, "ahead", y=y, style=size_index, label=label)
        axes.set_yticks(range(len(pairs)), [f"{arm}\nagainst {base}" for arm, base in pairs])
        axes.set_ylim(len(pairs) - 0.5, -0.5)
        _draw_margin(axes)
        axes.set_xlabel(f"ahead in {metric}, test problems (points); filled: significant")
        axes.grid(axis="x", color="#dddddd")
        figure.legend(loc="outside lower center", ncols=3)
        figure.suptitle(_wrap(title), fontweight="bold")
        save_figure(figure, file)


def write_control(
    file: Path, title: str, final_by_share: Mapping[float, Rows], metric: str
) -> None:
    """Draw the accuracy of each arm over the share of lucky chosen solutions.

    Args:
        file: The SVG file.
        title: The answer, as a sentence.
        final_by_share: Rows of ``final.csv`` by the share in percent.
        metric: Name of the accuracy, such as "avg@2".
    """
    shares = sorted(final_by_share)
    points: dict[str, dict[float, dict[str, object]]] = {}
    for share in shares:
        for row in final_by_share[share]:
            if (row["problems"], row["measure"]) == ("solve", "sampled"):
                points.setdefault(str(row["arm"]), {})[share] = row
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.subplots()
        for index, (arm, rows) in enumerate(points.items()):
            offset = 1.5 * (index - len(points) / 2)  # Intervals do not cover each other.
            values, lows, highs = (
                np.array([float(str(row[f"value{end}"])) for row in rows.values()])
                for end in ("", " low", " high")
            )
            axes.errorbar(
                np.array(list(rows)) + offset,
                values,
                yerr=np.stack([values - lows, highs - values]),
                fmt=f"{MARKERS[index]}-",
                color=COLOURS[index],
                capsize=3,
                label=arm,
            )
        axes.set_xticks(shares)
        axes.set_xlabel("chosen solutions that contain the mistake and are correct by luck (%)")
        axes.set_ylabel(f"{metric}, test problems (%)")
        axes.set_ylim(0, None)
        axes.grid(axis="y", color="#dddddd")
        figure.legend(loc="outside lower center", ncols=3)
        figure.suptitle(_wrap(title), fontweight="bold")
        save_figure(figure, file)


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
    is_filled = row.get("verdict", "ahead") in ("ahead", "behind")
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
