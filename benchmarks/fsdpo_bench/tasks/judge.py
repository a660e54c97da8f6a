"""Judge the responses to a benchmark's problems, with the benchmark's tolerance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from fsdpo_bench.tasks.table import Task
from fsdpo_data.answers import Grader, Verdict
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.core.nouns import Problem
from fsdpo_data.models.thinking import find_thought
from fsdpo_data.stages.grade import Response, judge_all

#: Problems, a response to each and, where they are known, why the response ended and the prompt.
Items: TypeAlias = Sequence[tuple[Problem, str] | tuple[Problem, str, str, str]]


@dataclass(frozen=True, slots=True)
class Judged:
    """A response judged by a benchmark."""

    verdict: Verdict  #: The verdict that counts: the tolerant one where the benchmark is tolerant.
    strict: Verdict


def judge(task: Task, items: Items, workers: int | None = None) -> list[Judged]:
    """Judge responses to problems, in order; few of them in this process."""
    strict = _grade(MathGrader, items, workers)
    counted = list(strict)
    allowed = [problem.metadata.get("gold_tolerance", task.tolerance) for problem, *_ in items]
    for tolerance in {*allowed} - {None}:
        places = [place for place, each in enumerate(allowed) if each == tolerance]
        graded = _grade(partial(MathGrader, tolerance), [items[at] for at in places], workers)
        for place, verdict in zip(places, graded, strict=True):
            counted[place] = verdict
    return list(map(Judged, counted, strict))


def _grade(make: Callable[[], Grader], items: Items, workers: int | None) -> list[Verdict]:
    """Grade with a problem's gold and with what also counts: one of them is enough."""
    pairs = [
        (index, _response(gold, *response))
        for index, (problem, *response) in enumerate(items)
        for gold in (problem.answer, *problem.metadata.get("also", ()))
    ]
    verdicts: dict[int, Verdict] = {}
    graded = judge_all(make, [pair for _, pair in pairs], workers)
    for (index, _), verdict in zip(pairs, graded, strict=True):
        if index not in verdicts or verdict.status == "correct":
            verdicts[index] = verdict
    return list(verdicts.values())


def _response(gold: str, text: str, ended: str = "stop", prompt: str = "") -> Response:
    return gold, find_thought(prompt, text), text, ended
