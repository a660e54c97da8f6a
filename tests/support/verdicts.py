"""Verdicts of the grader of this release on requests."""

from collections.abc import Sequence

from fsdpo_data.answers import GradingRequest, Verdict
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.grading.pool import open_grader


def grade_requests(requests: Sequence[GradingRequest], workers: int | None = None) -> list[Verdict]:
    """Grade responses with the strict grader of this release, in worker processes if they are many.

    Args:
        requests: The responses with their golds and tolerances.
        workers: The number of processes. None starts one per CPU core.
    """
    with open_grader(get_grader, len(requests), workers) as grader:
        return grader.grade(requests)
