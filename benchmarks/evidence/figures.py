"""The figures of `make evidence`."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from fsdpo_bench.report.figure_files import save_figure
from matplotlib.figure import Figure
from tables import AGGREGATES, TITLES, BenchmarkResult, Cell, Measurement

STYLE = {"svg.fonttype": "none", "svg.hashsalt": "evidence", "font.size": 9, "axes.axisbelow": True}
#: Colours that also differ in lightness (Okabe & Ito).
COLOURS = {"min": "#0072B2", "mean": "#D55E00", "last": "#CC79A7", "prod": "#009E73"}
MARKERS = {"min": "o", "mean": "s", "last": "D", "prod": "^"}
MODEL = "qwen_prm"  #: The model that scored all benchmarks.


def write_sizes(file: Path, benchmarks: Sequence[BenchmarkResult]) -> None:
    """Draw the accuracy of each strategy at every N, for the model that scored all benchmarks."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 4.2), layout="constrained")
        for axes, benchmark in zip(figure.subplots(1, len(benchmarks)), benchmarks, strict=True):
            sizes = [int(size) for size in benchmark.sizes]
            result = benchmark.result

            def cells(
                decoder: str, aggregate: str = "", result: Measurement = result
            ) -> list[Cell]:
                model = MODEL if aggregate else ""
                return [result.accuracy(decoder, size, aggregate, model) for size in result.sizes]

            lines = {
                "pass@N": (
                    [result.numbers["pass_at_k"][size] for size in benchmark.sizes],
                    "#777777",
                    ":",
                ),
                "vote": (cells("sc"), "#000000", "-"),
                "weighted vote, min": (cells("weighted", "min"), "#000000", "--"),
                **{
                    f"best-of-N, {name}": (cells("bon", name), COLOURS[name], "-")
                    for name in AGGREGATES
                },
            }
            ends = []
            for label, (line_cells, colour, style) in lines.items():
                values = [100 * cell["value"] for cell in line_cells]
                axes.plot(sizes, values, color=colour, linestyle=style, marker=".", linewidth=1.3)
                ends.append((values[-1], label, colour))
            low, high = axes.get_ylim()
            gap = (high - low) / 22
            position = -float("inf")
            for value, label, colour in sorted(ends):
                position = max(value, position + gap)
                axes.text(sizes[-1] * 1.08, position, label, color=colour, va="center", fontsize=8)
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, list(map(str, sizes)))
            axes.set_xlim(0.9, sizes[-1] * 6)
            axes.set(xlabel="N samples", ylabel="accuracy (%)", title=benchmark.title)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        save_figure(figure, file)


def write_models(file: Path, benchmarks: Sequence[BenchmarkResult]) -> None:
    """Draw how far best-of-N is ahead of the vote at the largest N, by model and aggregate."""
    with matplotlib.rc_context(STYLE):
        rows = [
            (benchmark, model, f"{TITLES[model]}, {benchmark.title}")
            for benchmark in benchmarks
            for model in benchmark.result.models
        ]
        figure = Figure(figsize=(9, 0.9 + 0.55 * len(rows)), layout="constrained")
        axes = figure.subplots()
        for index, (benchmark, model, _) in enumerate(rows):
            largest = benchmark.sizes[-1]
            for offset, name in enumerate(AGGREGATES):
                cell = benchmark.result.ahead("vote", "bon", largest, name, model)
                y = index + 0.17 * (offset - 1.5)
                low, high = (100 * bound for bound in cell["ci95"])
                axes.plot([low, high], [y, y], color=COLOURS[name], linewidth=1.2)
                value = 100 * cell["value"]
                axes.plot(value, y, MARKERS[name], color=COLOURS[name], markersize=4.5)
                if index == 0:
                    axes.text(high + 0.15, y, name, color=COLOURS[name], va="center", fontsize=8)
        axes.axvline(0, color="#000000", linewidth=0.8)
        axes.set_yticks(range(len(rows)), [label for _, _, label in rows])
        axes.invert_yaxis()
        axes.set_xlabel(
            f"best of {benchmarks[0].sizes[-1]}: points ahead of the vote, with 95 % intervals"
        )
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        save_figure(figure, file)
