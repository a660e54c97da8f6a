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
STRATEGIES = {"best-of-n": "best-of-N", "weighted-vote": "weighted vote"}


@dataclass(frozen=True)
class BenchmarkResult:
    """The measurements of one benchmark."""

    title: str  #: Title of the benchmark.
    prompt_share: float  #: Fraction of the rows with the chat prompt in step 0.
    result: Mapping[str, Any]  #: Output of `fsdpo-bench rerank` on all problems.
    without_prompt: Mapping[str, Any]  #: The same on problems without the chat prompt in any row.

    @property
    def sizes(self) -> list[str]:
        """The values of N, as keys of the results."""
        return [str(size) for size in self.result["n"]]


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
                f"points ahead of the vote, {benchmark.without_prompt['problems']} problems "
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
        for model, entry in benchmark.result["models"].items()
        for size, cell in entry["selected"].items()
        if size != "1"
    }
    return dict(zip(p_values, holm(list(p_values.values())), strict=True))


def points(cell: Mapping[str, Any], sign: str = "") -> str:
    """Return a mean with its interval, in percent or in points."""
    low, high = cell["ci95"]
    return f"{100 * cell['value']:{sign}.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def _heading(benchmark: BenchmarkResult) -> str:
    result = benchmark.result
    sample = points(result["sample"])
    return (
        f"== {benchmark.title}: {result['problems']} problems x {result['samples_per_problem']} "
        f"samples, {result['mixed_problems']} problems with correct and incorrect samples\n"
        f"chat prompt in step 0: {100 * benchmark.prompt_share:.1f} % of the rows, none in "
        f"{benchmark.without_prompt['problems']} problems\n"
        f"an average sample: {sample} %\n"
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
    for name, title in (("vote", "vote"), ("pass", "pass@N")):
        cells = benchmark.result[name]
        yield [title, *(points(cells[size]) for size in benchmark.sizes)]


def _accuracy_rows(benchmark: BenchmarkResult) -> Iterator[list[str]]:
    yield ["model", "strategy", "aggregate", *(f"N={size}" for size in benchmark.sizes)]
    for model, strategy, aggregate, cells in _cells(benchmark.result, "accuracy"):
        values = (f"{100 * cells[size]['value']:.1f}" for size in benchmark.sizes)
        yield [model, strategy, aggregate, *values]


def _ahead_rows(result: Mapping[str, Any]) -> Iterator[list[str]]:
    sizes = [str(size) for size in result["n"] if size > 1]
    yield ["model", "strategy", "aggregate", *(f"N={size}" for size in sizes)]
    for model, strategy, aggregate, cells in _cells(result, "ahead_of_vote"):
        yield [model, strategy, aggregate, *(points(cells[size], "+") for size in sizes)]


def _cells(
    result: Mapping[str, Any], kind: str
) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """Yield model, strategy, aggregate and the values by N."""
    for model, entry in result["models"].items():
        for strategy, title in STRATEGIES.items():
            for aggregate in AGGREGATES:
                yield TITLES[model], title, aggregate, entry[kind][strategy][aggregate]


def _aggregate_rows(result: Mapping[str, Any]) -> Iterator[list[str]]:
    sizes = [str(size) for size in result["n"] if size > 1]
    yield ["model", "aggregate", *(f"N={size}" for size in sizes)]
    for model, entry in result["models"].items():
        for aggregate in ("mean", "last", "prod"):
            cells = entry["ahead_of_min"][aggregate]
            yield [TITLES[model], aggregate, *(points(cells[size], "+") for size in sizes)]


def _selected_rows(
    benchmark: BenchmarkResult, p_holm: Mapping[tuple[str, str, str], float]
) -> Iterator[list[str]]:
    yield ["model", "N", "accuracy", "ahead of the vote", "p", "p (Holm)", "selected"]
    for model, entry in benchmark.result["models"].items():
        for size, cell in entry["selected"].items():
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
    for model, entry in benchmark.result["models"].items():
        aucs = [entry["ranking_auc"][aggregate] for aggregate in AGGREGATES]
        yield [
            TITLES[model],
            *(f"{a['value']:.3f} [{a['ci95'][0]:.3f}, {a['ci95'][1]:.3f}]" for a in aucs),
        ]


def _calibration_rows(benchmark: BenchmarkResult) -> Iterator[list[str]]:
    yield ["model", *AGGREGATES, "constant prediction"]
    for model, entry in benchmark.result["models"].items():
        qualities = [entry["calibration"][aggregate] for aggregate in AGGREGATES]
        yield [
            TITLES[model],
            *(f"{quality['ece']:.3f} ({quality['brier']:.3f})" for quality in qualities),
            f"0 ({qualities[0]['base_brier']:.3f})",
        ]


def _pair_rows(benchmark: BenchmarkResult) -> Iterator[list[str]]:
    yield ["model", "pairs", "problems", "margin", "p10", "median", "p90", "negative (%)"]
    for model, entry in benchmark.result["models"].items():
        pairs = entry["pairs"]
        margin = pairs["margin"]
        values = (f"{margin[name]:.3f}" for name in ("mean", "p10", "median", "p90"))
        yield [
            TITLES[model],
            str(pairs["pairs"]),
            str(pairs["problems"]),
            *values,
            f"{100 * margin['negative']:.1f}",
        ]


def _weight_rows(benchmark: BenchmarkResult) -> Iterator[list[str]]:
    gammas = list(next(iter(benchmark.result["models"].values()))["pairs"]["weights"])
    yield ["model", "side", *(f"gamma {gamma}" for gamma in gammas)]
    for model, entry in benchmark.result["models"].items():
        for side in ("chosen", "rejected"):
            weights = [entry["pairs"]["weights"][gamma][side] for gamma in gammas]
            cells = (f"{w['from_uniform']:.3f}, {w['max_over_uniform']:.2f}" for w in weights)
            yield [TITLES[model], side, *cells]
