"""The table of ``fsdpo-bench diff``: its columns, and the cells of each difference."""

from fsdpo_bench.metrics.compare import BenchmarkMean, Comparison, PairedDifference

_MEAN_TITLE = "mean"  #: Name of the mean over all compared benchmarks, in place of a benchmark.

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
    tasks = list(dict.fromkeys(paired.task for paired in comparison.differences))
    rows = [_paired_cells(paired) for paired in comparison.differences]
    rows.sort(key=lambda row: tasks.index(row["benchmark"]))
    return rows + [_mean_cells(mean) for mean in comparison.means]


def _paired_cells(paired: PairedDifference) -> dict[str, str]:
    """Return the cells of a difference on a benchmark."""
    p = paired.difference.p
    return {
        "benchmark": paired.task,
        **_number_cells(paired),
        "only-a": "" if paired.only_a is None else f"{paired.only_a:,}",
        "only-b": "" if paired.only_b is None else f"{paired.only_b:,}",
        "p": f"{p:.4f}" if p >= 1e-4 else f"{p:.1e}",
    }


def _mean_cells(mean: BenchmarkMean) -> dict[str, str]:
    """Return the cells of a mean over the benchmarks, which has no test."""
    return {
        "benchmark": _MEAN_TITLE,
        **_number_cells(mean),
        "only-a": "",
        "only-b": "",
        "p": "",
    }


def _number_cells(compared: PairedDifference | BenchmarkMean) -> dict[str, str]:
    """Return the cells of two numbers and their difference, in points."""
    difference = compared.difference
    problems = f"{difference.n:,}"
    if difference.clusters:
        problems += f" ({difference.clusters})"
    low, high = (100 * bound for bound in difference.ci95)
    return {
        "decoder": compared.measure,
        "a": f"{100 * compared.value_a:.1f}",
        "b": f"{100 * compared.value_b:.1f}",
        "difference": f"{100 * difference.value:+.1f}",
        "interval": f"[{low:+.1f}, {high:+.1f}]",
        "problems": problems,
    }
