"""The benchmark harness: maths benchmarks, graded by the grader that makes the labels.

Importing this package is cheap: what :func:`run` needs loads when it is called.
"""

from collections.abc import Callable

from fsdpo_bench.results.result_types import Results
from fsdpo_bench.runs.options import RunOptions

__all__ = ["RunOptions", "run"]


def run(options: RunOptions, warn: Callable[[str], None] = lambda text: None) -> Results:
    """Decode benchmarks, grade, write the reports, and return what ``results.json`` says.

    ``warn`` is told of what a reader of the results should know, before anything is decoded.

    Raises:
        InputError: if an option cannot be used.
        Unavailable: if a library, a GPU, a model or the Hub is not here.
    """
    from fsdpo_bench.report.render import write_report
    from fsdpo_bench.runs.make_job import run_job

    return write_report(run_job(options, warn), warn=warn)
