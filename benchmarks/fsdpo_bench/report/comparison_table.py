"""The table of ``fsdpo-bench diff``: its columns, and the cells of each difference."""

from fsdpo_bench.results.compare import PairedDifference, RunComparison
from fsdpo_bench.results.paired_means import MEAN_TITLE, PairedMean

#: Headings of the columns of ``diff`` by name; ">" marks a column of numbers.
DIFF_COLUMNS = {
    "benchmark": "benchmark",
    "decoder": "decoder",
    "a": "A>",
    "b": "B>",
    "difference": "B - A>",
    "interval": "95 %>",
    "only-a": "only A>",
    "only-b": "only B>",
    "p": "p>",
    "problems": "problems>",
}


def comparison_rows(comparison: RunComparison) -> list[dict[str, str]]:
    """Return the cells of each difference by name of the column, sorted by benchmark."""
    order = [*dict.fromkeys(delta.task for delta in comparison.deltas), MEAN_TITLE]
    rows = [*map(_difference_row, comparison.deltas), *map(_mean_row, comparison.means)]
    return sorted(rows, key=lambda row: order.index(row["benchmark"]))


def _difference_row(delta: PairedDifference) -> dict[str, str]:
    return _row_cells(
        delta, delta.decoders, delta.correct_a / delta.n, delta.correct_b / delta.n
    ) | {"only-a": f"{delta.only_a:,}", "only-b": f"{delta.only_b:,}"}


def _mean_row(mean: PairedMean) -> dict[str, str]:
    return _row_cells(mean, mean.measure, mean.value_a, mean.value_b)


def _row_cells(
    row: PairedDifference | PairedMean, title: str, value_a: float, value_b: float
) -> dict[str, str]:
    """Return the cells of a difference by name of the column, in points."""
    low, high = (100 * bound for bound in row.ci95)
    p = ""
    if row.p is not None:
        p = f"{row.p:.4f}" if row.p >= 1e-4 else f"{row.p:.1e}"
    return {
        "benchmark": row.task,
        "decoder": title,
        "a": f"{100 * value_a:.1f}",
        "b": f"{100 * value_b:.1f}",
        "difference": f"{100 * row.difference:+.1f}",
        "interval": f"[{low:+.1f}, {high:+.1f}]",
        "only-a": "",
        "only-b": "",
        "p": p,
        "problems": f"{row.n:,}" + (f" ({row.clusters})" if row.clusters else ""),
    }
