"""The tables of `make evidence`, as text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsdpo_data.core.statistics import holm

#: Titles of the models, by the names of their files of scores.
TITLES = {
    "qwen_prm": "Qwen2.5-Math-PRM-7B",
    "skywork_prm": "Skywork PRM",
    "skywork_prm_1_5b": "Skywork PRM 1.5B",
    "rlhflow_prm": "RLHFlow PRM",
    "math_shepherd": "Math-Shepherd PRM",
    "internlm2_7b_reward": "InternLM2-7B-reward (ORM)",
    "internlm2_1_8b_reward": "InternLM2-1.8B-reward (ORM)",
}
AGGREGATES = ("min", "mean", "last", "prod")
STRATEGIES = {"bon": "best-of-N", "weighted": "weighted vote"}
#: A number with its interval, in the JSON of `fsdpo-bench report`.
Cell = Mapping[str, Any]


@dataclass(frozen=True)
class Measurement:
    """The output of `fsdpo-bench report` on the datasets of a benchmark."""

    content: Mapping[str, Any]  #: The JSON.

    @property
    def task(self) -> Mapping[str, Any]:
        """The results of the only benchmark."""
        [task] = self.content["tasks"].values()
        return dict(task)

    @property
    def numbers(self) -> Mapping[str, Mapping[str, Cell]]:
        """The numbers of the benchmark besides the accuracies, such as ``pass_at_k``, by key."""
        return dict(self.task["numbers"])

    @property
    def models(self) -> list[str]:
        """Names of the reward models."""
        return list(self.content["rewards"])

    @property
    def sizes(self) -> list[str]:
        """The values of N."""
        return [key for key in self.numbers["maj_at_k"] if f"sc@{key}" in self.task["decoders"]]

    def rewards(self, model: str) -> Mapping[str, Any]:
        """Return the statistics of the rewards of a model."""
        return dict(self.content["rewards"][model])

    def name(self, decoder: str, size: str, aggregate: str, model: str) -> str:
        """Return the result name of a choice by a model."""
        suffix = f" by {model}" if len(self.models) > 1 else ""
        return f"{decoder}@{size}:{aggregate}{suffix}"

    def accuracy(self, decoder: str, size: str, aggregate: str = "", model: str = "") -> Cell:
        """Return the accuracy of a choice; of a vote without an aggregate."""
        name = self.name(decoder, size, aggregate, model) if aggregate else f"{decoder}@{size}"
        return dict(self.task["decoders"][name]["accuracy"])

    def ahead(self, kind: str, decoder: str, size: str, aggregate: str, model: str) -> Cell:
        """Return the difference from the vote (``vote``) or from best-of-N by ``min``."""
        return dict(self.task[f"ahead_of_{kind}"][self.name(decoder, size, aggregate, model)])


@dataclass(frozen=True)
class BenchmarkResult:
    """The measurements of one benchmark."""

    title: str  #: Title of the benchmark.
    prompt_share: float  #: Fraction of the rows with the chat prompt in step 0.
    result: Measurement  #: The measurement on all problems.
    without_prompt: Measurement  #: The same on problems without the chat prompt in any row.

    @property
    def sizes(self) -> list[str]:
        """The values of N, as keys of the results."""
        return self.result.sizes


def render_tables(benchmarks: Sequence[BenchmarkResult]) -> str:
    """Return all tables."""
    p_holm = corrected_p_values(benchmarks)
    parts = []
    for benchmark in benchmarks:
        parts += [
            _heading(benchmark),
            _table("accuracy (%) without rewards", _baseline_rows(benchmark)),
            _table("accuracy (%) by rewards", _accuracy_rows(benchmark)),
            _table("points ahead of the vote, all problems", _ahead_rows(benchmark.result)),
            _table("best-of-N: points ahead of min", _aggregate_rows(benchmark.result)),
            _table(
                "selected on one half of the problems, measured on the other half; p by Holm over "
                f"{len(p_holm)} comparisons",
                _selected_rows(benchmark, p_holm),
            ),
            _table("ranking AUC within problems, by aggregate", _auc_rows(benchmark)),
            _table(
                "calibration of the aggregates: ECE (Brier score)", _calibration_rows(benchmark)
            ),
            _table("pairs of the paper (T = 4, mean)", _pair_rows(benchmark)),
            _table(
                "step weights on these pairs: distance from uniform, and K x largest weight",
                _weight_rows(benchmark),
            ),
            _table(
                f"points ahead of the vote, {benchmark.without_prompt.task['problems']} problems "
                "without the chat prompt",
                _ahead_rows(benchmark.without_prompt),
            ),
        ]
    return "\n".join(parts)


def corrected_p_values(benchmarks: Sequence[BenchmarkResult]) -> dict[tuple[str, str, str], float]:
    """Return Holm's p-values of the selected strategies, by benchmark, model and N above 1."""
    p_values = {
        (benchmark.title, model, size): cell["ahead_of_vote"]["p"]
        for benchmark in benchmarks
        for model, by_size in benchmark.result.task["selected"].items()
        for size, cell in by_size.items()
        if size != "1"
    }
    return dict(zip(p_values, holm(list(p_values.values())), strict=True))


def points(cell: Cell, sign: str = "") -> str:
    """Return a mean with its interval, in percent or in points."""
    low, high = cell["ci95"]
    return f"{100 * cell['value']:{sign}.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def _heading(benchmark: BenchmarkResult) -> str:
    task = benchmark.result.task
    [sample] = benchmark.result.numbers["avg_at_k"].values()
    return (
        f"== {benchmark.title}: {task['problems']} problems x {task['samples']} "
        f"samples, {task['mixed_problems']} problems with correct and incorrect samples\n"
        f"chat prompt in step 0: {100 * benchmark.prompt_share:.1f} % of the rows, none in "
        f"{benchmark.without_prompt.task['problems']} problems\n"
        f"an average sample: {points(sample)} %\n"
    )


def _table(title: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a title and aligned rows; the first row is the header."""
    cells = list(rows)
    widths = [max(len(row[index]) for row in cells) for index in range(len(cells[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return "\n".join([title, *lines, ""])


def _baseline_rows(benchmark: BenchmarkResult) -> Iterator[list[str]]:
    yield ["", *(f"N={size}" for size in benchmark.sizes)]
    result = benchmark.result
    yield ["vote", *(points(result.accuracy("sc", size)) for size in benchmark.sizes)]
    yield ["pass@N", *(points(result.numbers["pass_at_k"][size]) for size in benchmark.sizes)]


def _accuracy_rows(benchmark: BenchmarkResult) -> Iterator[list[str]]:
    yield ["model", "strategy", "aggregate", *(f"N={size}" for size in benchmark.sizes)]
    result = benchmark.result
    for model, decoder, aggregate in _choices(result):
        cells = (result.accuracy(decoder, size, aggregate, model) for size in benchmark.sizes)
        values = (f"{100 * cell['value']:.1f}" for cell in cells)
        yield [TITLES[model], STRATEGIES[decoder], aggregate, *values]


def _ahead_rows(result: Measurement) -> Iterator[list[str]]:
    sizes = [size for size in result.sizes if size != "1"]
    yield ["model", "strategy", "aggregate", *(f"N={size}" for size in sizes)]
    for model, decoder, aggregate in _choices(result):
        cells = (result.ahead("vote", decoder, size, aggregate, model) for size in sizes)
        values = (points(cell, "+") for cell in cells)
        yield [TITLES[model], STRATEGIES[decoder], aggregate, *values]


def _choices(result: Measurement) -> Iterator[tuple[str, str, str]]:
    """Yield reward model, decoder and aggregate."""
    for model in result.models:
        for decoder in STRATEGIES:
            for aggregate in AGGREGATES:
                yield model, decoder, aggregate


def _aggregate_rows(result: Measurement) -> Iterator[list[str]]:
    sizes = [size for size in result.sizes if size != "1"]
    yield ["model", "aggregate", *(f"N={size}" for size in sizes)]
    for model in result.models:
        for aggregate in ("mean", "last", "prod"):
            cells = (result.ahead("min", "bon", size, aggregate, model) for size in sizes)
            yield [TITLES[model], aggregate, *(points(cell, "+") for cell in cells)]


def _selected_rows(
    benchmark: BenchmarkResult, p_holm: Mapping[tuple[str, str, str], float]
) -> Iterator[list[str]]:
    yield ["model", "N", "accuracy", "ahead of the vote", "p", "p (Holm)", "selected"]
    for model, by_size in benchmark.result.task["selected"].items():
        for size, cell in by_size.items():
            if size == "1":
                continue
            ahead = cell["ahead_of_vote"]
            yield [
                TITLES[model],
                size,
                points(cell["accuracy"]),
                points(ahead, "+"),
                f"{ahead['p']:.4f}",
                f"{p_holm[benchmark.title, model, size]:.4f}",
                ", ".join(dict.fromkeys(cell["strategies"])),
            ]


def _auc_rows(benchmark: BenchmarkResult) -> Iterator[list[str]]:
    yield ["model", *AGGREGATES]
    for model in benchmark.result.models:
        by_aggregate = benchmark.result.rewards(model)["ranking_auc"]
        aucs = [by_aggregate[aggregate] for aggregate in AGGREGATES]
        yield [
            TITLES[model],
            *(f"{a['value']:.3f} [{a['ci95'][0]:.3f}, {a['ci95'][1]:.3f}]" for a in aucs),
        ]


def _calibration_rows(benchmark: BenchmarkResult) -> Iterator[list[str]]:
    yield ["model", *AGGREGATES, "constant prediction"]
    for model in benchmark.result.models:
        by_aggregate = benchmark.result.rewards(model)["quality"]
        qualities = [by_aggregate[aggregate] for aggregate in AGGREGATES]
        yield [
            TITLES[model],
            *(f"{entry['expected_error']:.3f} ({entry['brier']:.3f})" for entry in qualities),
            f"0 ({qualities[0]['constant_brier']:.3f})",
        ]


def _pair_rows(benchmark: BenchmarkResult) -> Iterator[list[str]]:
    yield ["model", "pairs", "problems", "margin"]
    for model in benchmark.result.models:
        pairs = benchmark.result.rewards(model)["pairs"]
        yield [TITLES[model], str(pairs["pairs"]), str(pairs["problems"]), f"{pairs['margin']:.3f}"]


def _weight_rows(benchmark: BenchmarkResult) -> Iterator[list[str]]:
    models = benchmark.result.models
    gammas = list(benchmark.result.rewards(models[0])["pairs"]["weights"])
    yield ["model", "side", *(f"gamma {gamma}" for gamma in gammas)]
    for model in models:
        by_gamma = benchmark.result.rewards(model)["pairs"]["weights"]
        for side in ("chosen", "rejected"):
            weights = [by_gamma[gamma][side] for gamma in gammas]
            cells = (f"{w['from_uniform']:.3f}, {w['max_over_uniform']:.2f}" for w in weights)
            yield [TITLES[model], side, *cells]
