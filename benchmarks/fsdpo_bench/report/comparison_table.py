"""The table of ``fsdpo-bench diff``: its columns, and the cells of each difference."""

from fsdpo_bench.metrics.compare import MEAN_TITLE, Comparison, PairedDifference

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


def comparison_rows(comparison: Comparison) -> list[dict[str, str]]:
    """Return the cells of each difference by name of the column, sorted by benchmark."""
    tasks = dict.fromkeys(difference.task for difference in comparison.differences)
    order = [*(task for task in tasks if task != MEAN_TITLE), MEAN_TITLE]
    rows = [_row_cells(row) for row in comparison.differences]
    return sorted(rows, key=lambda row: order.index(row["benchmark"]))


def _row_cells(row: PairedDifference) -> dict[str, str]:
    """Return the cells of a difference by name of the column, in points."""
    difference = row.difference
    problems = f"{difference.n:,}"
    if difference.clusters:
        problems += f" ({difference.clusters})"
    low, high = (100 * bound for bound in difference.ci95)
    p = ""
    if difference.p is not None:
        p = f"{difference.p:.4f}" if difference.p >= 1e-4 else f"{difference.p:.1e}"
    return {
        "benchmark": row.task,
        "decoder": row.measure,
        "a": f"{100 * row.value_a:.1f}",
        "b": f"{100 * row.value_b:.1f}",
        "difference": f"{100 * difference.value:+.1f}",
        "interval": f"[{low:+.1f}, {high:+.1f}]",
        "only-a": "" if row.only_a is None else f"{row.only_a:,}",
        "only-b": "" if row.only_b is None else f"{row.only_b:,}",
        "p": p,
        "problems": problems,
    }
