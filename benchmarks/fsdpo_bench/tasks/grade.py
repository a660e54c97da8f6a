"""Grade the responses to a benchmark's problems, with the tolerance of the benchmark."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

from fsdpo_bench.tasks.table import Task
from fsdpo_data.answers import Grader, Verdict
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.core.entities import Problem
from fsdpo_data.models.thinking import find_thinking
from fsdpo_data.stages.grade import GradingInput, grade_in_pool


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
    inputs = [_grading_inputs(response) for response in responses]
    strict_verdicts = _grade(MathGrader, inputs, workers)
    verdicts = list(strict_verdicts)
    tolerances = [
        response.problem.metadata.get("gold_tolerance", task.tolerance) for response in responses
    ]
    for tolerance in set(tolerances) - {None}:
        indices = [index for index, value in enumerate(tolerances) if value == tolerance]
        selected_inputs = [inputs[index] for index in indices]
        tolerant_verdicts = _grade(partial(MathGrader, tolerance), selected_inputs, workers)
        for index, verdict in zip(indices, tolerant_verdicts, strict=True):
            verdicts[index] = verdict
    return list(map(TaskVerdict, verdicts, strict_verdicts))


def _grading_inputs(response: TaskResponse) -> list[GradingInput]:
    """Return the response once with the gold answer, and once with each alternative gold."""
    problem = response.problem
    golds = (problem.answer, *problem.metadata.get("alternative_golds", ()))
    thinking = find_thinking(response.prompt, response.text)
    return [
        GradingInput(
            gold=gold,
            thinking=thinking,
            text=response.text,
            finish_reason=response.finish_reason,
        )
        for gold in golds
    ]


def _grade(
    make_grader: Callable[[], Grader],
    inputs: Sequence[Sequence[GradingInput]],
    workers: int | None,
) -> list[Verdict]:
    """Grade each response against all its golds; it is correct if one of them matches."""
    flat_inputs = [item for response_inputs in inputs for item in response_inputs]
    flat_verdicts = iter(grade_in_pool(make_grader, flat_inputs, workers))
    verdicts = []
    for response_inputs in inputs:
        candidates = list(islice(flat_verdicts, len(response_inputs)))
        correct = [verdict for verdict in candidates if verdict.status == "correct"]
        # Any correct verdict is enough. A wrong response keeps the verdict on the main gold answer.
        verdicts.append(correct[-1] if correct else candidates[0])
    return verdicts
