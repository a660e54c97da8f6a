"""Mathematics benchmarks, with the same grader as the labels of ``fsdpo_data``.

The package imports quickly: :func:`run` imports its dependencies when it is called.
"""

from collections.abc import Callable
from pathlib import Path

from fsdpo_bench.run_options import RunOptions
from fsdpo_data.core.keyword_functions import checks_arguments

__all__ = ["RunOptions", "run"]


@checks_arguments
def run(options: RunOptions, warn: Callable[[str], None] = lambda text: None) -> Path:
    """Solve benchmarks, and grade the answers.

    Args:
        options: The options of the run.
        warn: Called with each warning about benchmarks, models and failed problems.

    Returns:
        The folder of the run.

    Raises:
        InputError: if an option cannot be used.
        UnavailableError: if a library, a GPU, a model or the Hub is not available.

    Example:
        from fsdpo_bench import RunOptions, run

        folder = run(RunOptions(suite="smoke", model="tiny", limit=20, decoder="greedy"))
    """
    from fsdpo_bench.benchmark_run import run_benchmarks

    return run_benchmarks(options, warn)
