"""Tables of the choices by reward models: accuracy by N, selected strategies, and pairs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fsdpo_bench.decoders.decoders import DecoderSetup, parse_result_name
from fsdpo_bench.metrics.report_numbers import format_points
from fsdpo_bench.metrics.result_records import Results, TaskResults
from fsdpo_data.core.statistics import Mean

_MAX_LISTED_SIZES = 2  #: Values of N that a list of decoders shows; more are a table of their own.
_PAIR_SIDES = ("chosen", "rejected")


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table of texts."""

    title: str  #: Its heading.
    columns: Sequence[str]  #: Names of the columns; ">" at the end marks numbers.
    rows: Sequence[Sequence[str]]  #: The cells.


def listed_decoders(task: TaskResults) -> list[str]:
    """Return the decoders of a list: with many values of N, only those with the largest N."""
    sizes = _sizes(task)
    if len(sizes) <= _MAX_LISTED_SIZES:
        return list(task.decoders)
    return [name for name in task.decoders if _size(name) in (None, sizes[-1])]


def _size(name: str) -> int | None:
    """Return K of a decoder; None if it has no such parameter."""
    setup = parse_result_name(name)
    return setup.k if setup is not None and setup.decoder.has_k else None


def _sizes(task: TaskResults) -> list[int]:
    """Return the values of K of all decoders."""
    return sorted({size for name in task.decoders if (size := _size(name)) is not None})


def choice_tables(results: Results) -> list[TextTable]:
    """Return the tables with rows."""
    tables = [_size_table(task) for task in results.tasks.values()]
    tables += [_selection_table(task) for task in results.tasks.values()]
    tables += [_quality_table(results), _pair_table(results)]
    return [table for table in tables if table.rows]


def _size_table(task: TaskResults) -> TextTable:
    """Return the accuracy of each choice at every N; without rows for few values of N."""
    sizes = _sizes(task)
    if len(sizes) <= _MAX_LISTED_SIZES:
        sizes = []
    columns = ("choice", "reward model", *(f"N={size}>" for size in sizes))
    rows = list(_size_rows(task, sizes)) if sizes else []
    return TextTable(f"{task.title}: accuracy (%) of N samples", columns, rows)


def _size_rows(task: TaskResults, sizes: Sequence[int]) -> Iterator[list[str]]:
    averages = list(task.numbers.get("avg_at_k", {}).values())
    if averages:
        yield ["an average sample", "", *(format_points(averages[0]) for _ in sizes)]
    cells: dict[DecoderSetup, dict[int, Mean]] = {}
    for name, accuracy in task.accuracies.items():
        setup = parse_result_name(name)
        if setup is not None and setup.decoder.has_k:
            cells.setdefault(replace(setup, k=0), {})[setup.k] = accuracy
    for setup, by_size in cells.items():
        choice = setup.decoder.name + (f", {setup.aggregate}" if setup.aggregate else "")
        yield [
            choice,
            setup.model,
            *(format_points(by_size[size]) if size in by_size else "–" for size in sizes),
        ]
    passes = task.numbers.get("pass_at_k", {})
    if any(str(size) in passes for size in sizes):
        yield [
            "a perfect choice (pass@N)",
            "",
            *(format_points(passes[str(n)]) if str(n) in passes else "–" for n in sizes),
        ]


def _selection_table(task: TaskResults) -> TextTable:
    """Return the strategies that halves of the problems select."""
    columns = (
        "reward model",
        "N>",
        "accuracy>",
        "ahead of the vote>",
        "p>",
        "p (Holm)>",
        "selected",
    )
    rows = [
        [
            model,
            size,
            format_points(selected.accuracy),
            format_points(selected.ahead_of_vote, sign="+"),
            f"{selected.ahead_of_vote.p:.4f}",
            f"{selected.p_holm:.4f}",
            " / ".join(dict.fromkeys(selected.strategies)),
        ]
        for model, by_size in task.selected.items()
        for size, selected in by_size.items()
        if selected.p_holm is not None
    ]
    title = f"{task.title}: selected on one half of the problems, measured on the other half"
    return TextTable(title, columns, rows)


def _quality_table(results: Results) -> TextTable:
    """Return ranking AUC and calibration by reward model and aggregate.

    The aggregate that suits the reward model is marked.
    """
    rows = []
    for model, statistics in results.rewards.items():
        for aggregate, auc in statistics.ranking_auc.items():
            is_default = aggregate == statistics.default_aggregate
            label = f"{aggregate} (default)" if is_default else aggregate
            ranking = "–"
            if auc.value is not None and auc.ci95 is not None:
                low, high = auc.ci95
                ranking = f"{auc.value:.3f} [{low:.3f}, {high:.3f}]"
            errors = ["–", "–"]
            if statistics.quality is not None:
                quality = statistics.quality[aggregate]
                errors = [f"{quality.expected_error:.3f}", f"{quality.brier:.3f}"]
            rows.append([model, label, ranking, f"{auc.n:,}", *errors])
    columns = ("reward model", "aggregate", "AUC>", "problems>", "ECE>", "Brier>")
    return TextTable("ranking AUC within problems, and calibration", columns, rows)


def _pair_table(results: Results) -> TextTable:
    """Return the pairs that step rewards would select, and the distance of their weights."""
    by_model = {
        model: statistics.pairs
        for model, statistics in results.rewards.items()
        if statistics.pairs is not None
    }
    gammas = list(next(iter(by_model.values())).weights) if by_model else []
    rows = []
    for model, pairs in by_model.items():
        cells = [
            " / ".join(
                "–"
                if (distance := pairs.weights[gamma][side]) is None
                else f"{distance.from_uniform:.3f}"
                for side in _PAIR_SIDES
            )
            for gamma in gammas
        ]
        margin = "–" if pairs.margin is None else f"{pairs.margin:.3f}"
        rows.append(
            [
                model,
                pairs.aggregate,
                f"{pairs.top}",
                f"{pairs.pairs:,}",
                f"{pairs.problems:,}",
                margin,
                *cells,
            ]
        )
    columns = (
        *("reward model", "aggregate", "T>", "pairs>", "problems>", "margin>"),
        *(f"at γ {gamma}>" for gamma in gammas),
    )
    return TextTable("pairs, and distance of the step weights from equal weights", columns, rows)
