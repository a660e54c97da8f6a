"""Grade the responses to a benchmark's problems, with the tolerance of the benchmark."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fsdpo_bench.tasks.table import Task
from fsdpo_data.answers import GradingRequest, Verdict
from fsdpo_data.answers.pool import grade_requests
from fsdpo_data.core.entities import Problem
from fsdpo_data.models.thinking import find_thinking


class TaskResponse(NamedTuple):
    """A response to a problem of a benchmark."""

    problem: Problem  #: The problem, with its gold answer.
    text: str  #: The complete response.
    finish_reason: str = "stop"  #: ``stop``, or ``length`` for a truncated response.
    prompt: str = ""  #: The rendered prompt, which may open the thinking; empty if unknown.


@dataclass(frozen=True, slots=True)
class TaskVerdict:
    """The verdicts on a response to a problem of a benchmark."""

    verdict: Verdict  #: The verdict that counts, with the tolerance of the problem or benchmark.
    strict: Verdict  #: The verdict without any tolerance.


def grade_task_responses(
    task: Task, responses: Sequence[TaskResponse], workers: int | None = None
) -> list[TaskVerdict]:
    """Grade responses, in order.

    Args:
        task: The benchmark of the responses. Its relative tolerance applies to problems without a
            relative tolerance of their own (``gold_tolerance``).
        responses: The responses.
        workers: Number of grading processes; small inputs are graded in this process.
    """
    strict_requests = [_strict_request(response) for response in responses]
    strict_verdicts = grade_requests(strict_requests, workers)
    tolerances = [
        response.problem.metadata.get("gold_tolerance", task.tolerance) for response in responses
    ]
    tolerant_requests = [
        request._replace(tolerance=tolerance)
        for request, tolerance in zip(strict_requests, tolerances, strict=True)
        if tolerance is not None
    ]
    tolerant_verdicts = iter(grade_requests(tolerant_requests, workers))
    return [
        TaskVerdict(strict if tolerance is None else next(tolerant_verdicts), strict)
        for strict, tolerance in zip(strict_verdicts, tolerances, strict=True)
    ]


def _strict_request(response: TaskResponse) -> GradingRequest:
    """Return the request to grade a response without any tolerance."""
    problem = response.problem
    return GradingRequest(
        gold=problem.answer,
        response=response.text,
        finish_reason=response.finish_reason,
        thinking=find_thinking(response.prompt, response.text),
        alternative_golds=problem.metadata.get("alternative_golds", ()),
    )
