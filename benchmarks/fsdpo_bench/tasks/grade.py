"""Judge the responses to a benchmark's problems, with the benchmark's tolerance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeAlias

from fsdpo_bench.tasks.table import Task
from fsdpo_data.answers import Grader, Verdict
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.core.entities import Problem
from fsdpo_data.models.thinking import find_thinking
from fsdpo_data.stages.grade import GradingInput, grade_in_pool

#: Problems, a response to each and, where they are known, why the response ended and the prompt.
Items: TypeAlias = Sequence[tuple[Problem, str] | tuple[Problem, str, str, str]]


@dataclass(frozen=True, slots=True)
class TaskVerdict:
    """A response judged by a benchmark."""

    verdict: Verdict  #: The verdict that counts: the tolerant one where the benchmark is tolerant.
    strict: Verdict


def grade_task_responses(task: Task, items: Items, workers: int | None = None) -> list[TaskVerdict]:
    """Judge responses to problems, in order; few of them in this process."""
    responses = [_responses(*item) for item in items]
    strict = _grade(MathGrader, responses, workers)
    counted = list(strict)
    allowed = [problem.metadata.get("gold_tolerance", task.tolerance) for problem, *_ in items]
    for tolerance in {*allowed} - {None}:
        places = [place for place, each in enumerate(allowed) if each == tolerance]
        graded = _grade(partial(MathGrader, tolerance), [responses[at] for at in places], workers)
        for place, verdict in zip(places, graded, strict=True):
            counted[place] = verdict
    return list(map(TaskVerdict, counted, strict))


def _responses(
    problem: Problem, text: str, ended: str = "stop", prompt: str = ""
) -> list[GradingInput]:
    """Return a response with the problem's gold, and with what also counts."""
    thought = find_thinking(prompt, text)
    golds = (problem.answer, *problem.metadata.get("alternative_golds", ()))
    return [
        GradingInput(gold=gold, thinking=thought, text=text, finish_reason=ended) for gold in golds
    ]


def _grade(
    make: Callable[[], Grader], responses: Sequence[Sequence[GradingInput]], workers: int | None
) -> list[Verdict]:
    """Grade each response by all its golds: one of them is enough."""
    graded = iter(grade_in_pool(make, [each for some in responses for each in some], workers))
    verdicts = [list(islice(graded, len(some))) for some in responses]
    right = [[each for each in some if each.status == "correct"] for some in verdicts]
    return [found[-1] if found else some[0] for found, some in zip(right, verdicts, strict=True)]
