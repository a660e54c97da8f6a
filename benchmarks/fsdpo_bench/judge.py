"""Judge the responses to a benchmark's problems, as the benchmark's table entry says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fsdpo_bench.tasks import Task
from fsdpo_data.answers import Grader, Verdict
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.schema import Problem

#: Relative error that a tolerant benchmark accepts of a numeric answer.
TOLERANT = 0.01


@dataclass(frozen=True, slots=True)
class Judged:
    """A response judged by a benchmark.

    Attributes:
        verdict: The verdict that counts: the tolerant one where the benchmark is tolerant.
        strict: The verdict without any tolerance.
    """

    verdict: Verdict
    strict: Verdict


def judge(task: Task, items: Sequence[tuple[Problem, str]]) -> list[Judged]:
    """Judge (problem, response) pairs, in order."""
    strict = _grade(MathGrader(), items)
    counted = _grade(MathGrader(TOLERANT), items) if task.tolerant else strict
    return [Judged(*both) for both in zip(counted, strict, strict=True)]


def _grade(grader: Grader, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
    verdicts = grader.grade([(problem.answer, response) for problem, response in items])
    for index, (problem, response) in enumerate(items):
        for gold in problem.metadata.get("also", ()):
            if verdicts[index].status != "correct":
                [verdicts[index]] = grader.grade([(gold, response)])
    return verdicts
