"""Judge the responses to a benchmark's problems, with the benchmark's tolerance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fsdpo_bench.tasks.table import Task
from fsdpo_data.answers import Grader, Verdict
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.answers.pool import grade_all
from fsdpo_data.core.nouns import Problem


@dataclass(frozen=True, slots=True)
class Judged:
    """A response judged by a benchmark.

    Attributes:
        verdict: The verdict that counts: the tolerant one where the benchmark is tolerant.
        strict: The verdict without any tolerance.
    """

    verdict: Verdict
    strict: Verdict


def judge(
    task: Task, items: Sequence[tuple[Problem, str]], workers: int | None = None
) -> list[Judged]:
    """Judge (problem, response) pairs, in order.

    Args:
        task: The benchmark.
        items: The pairs.
        workers: Processes; the cores at hand if None. Few pairs are judged in this process.
    """
    strict = _grade(MathGrader, items, workers)
    tolerant = partial(MathGrader, task.tolerance)
    counted = strict if task.tolerance is None else _grade(tolerant, items, workers)
    return [Judged(*both) for both in zip(counted, strict, strict=True)]


def _grade(
    make: Callable[[], Grader], items: Sequence[tuple[Problem, str]], workers: int | None
) -> list[Verdict]:
    golds = [(index, problem.answer) for index, (problem, _) in enumerate(items)]
    golds += [
        (index, gold)
        for index, (problem, _) in enumerate(items)
        for gold in problem.metadata.get("also", ())
    ]
    graded = grade_all(make, [(gold, items[index][1]) for index, gold in golds], workers)
    verdicts = graded[: len(items)]
    for (index, _), verdict in zip(golds[len(items) :], graded[len(items) :], strict=True):
        if verdict.status == "correct":
            verdicts[index] = verdict
    return verdicts
