"""Mathematics benchmarks, with the same grader as the labels of ``fsdpo_data``.

The package imports quickly: :func:`run` imports its dependencies when it is called.
"""

from collections.abc import Callable

from fsdpo_bench.metrics.result_records import Results
from fsdpo_bench.run_options import RunOptions

__all__ = ["RunOptions", "run"]


def run(options: RunOptions, warn: Callable[[str], None] = lambda text: None) -> Results:
    """Solve benchmarks, grade the answers, and write the reports.

    Args:
        options: The options of the run.
        warn: Called with each warning: about benchmarks, models and failed problems, and about
            plots that fail.

    Returns:
        The results of the run, as in ``results.json``.

    Raises:
        InputError: if an option cannot be used.
        UnavailableError: if a library, a GPU, a model or the Hub is not available.

    Example:
        from fsdpo_bench import RunOptions, run

        results = run(RunOptions(suite="smoke", model="tiny", limit=20, decoder="greedy"))
    """
    from fsdpo_bench.benchmark_run import run_benchmarks
    from fsdpo_bench.metrics.measure import MeasureSpec
    from fsdpo_bench.report.reports import make_reports
    from fsdpo_data.dataset.remote import local_paths

    if options.shard is not None:
        raise options.field_error(
            "shard",
            "a shard has no results. Use the command line for shards, and `fsdpo-bench merge` for "
            "the results of all shards.",
        )
    with local_paths(options) as local_options:
        folder = run_benchmarks(local_options, warn, location=options.out)
        [report] = make_reports([folder], MeasureSpec(), warn=warn)
    return report.results
