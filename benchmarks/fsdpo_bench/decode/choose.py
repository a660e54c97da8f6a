"""Choose one of K samples: by vote, by weighted vote, by reward. All are given as plain values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fsdpo_data.answers.comparing.equal import equivalent


def answer_classes(answers: Sequence[str | None]) -> list[int | None]:
    r"""Group equivalent answers (``1/2``, ``\frac12`` and ``0.5`` are one).

    Equivalence to a gold is not transitive to the last digit, so a class is what its first member
    equals: each answer joins the first class whose first member it agrees with, either way round.

    Returns:
        For each answer the index of its class's first member; None where there is no answer. The
        first k of them do not depend on what follows.
    """
    firsts: list[int] = []
    classes: list[int | None] = []
    for index, answer in enumerate(answers):
        found = None
        if answer is not None and answer.strip():
            same = (first for first in firsts if _agree(str(answers[first]), answer))
            found = next(same, index)
            if found == index:
                firsts.append(index)
        classes.append(found)
    return classes


def _agree(one: str, other: str) -> bool:
    if one == other:
        return True
    return any(equivalent(*pair).status == "correct" for pair in ((one, other), (other, one)))


def majority(classes: Sequence[int | None]) -> int:
    """Self-consistency: return the first sample of the largest class; ties go to the earliest.

    Samples without an answer do not vote; if none has one, the first sample is returned.
    """
    return weighted_majority(classes, [1.0] * len(classes))


def weighted_majority(classes: Sequence[int | None], weights: Sequence[float | None]) -> int:
    """Return the first sample of the class with the largest sum of weights.

    Ties go to the earliest. A sample without a weight (the scorer could not read it) adds nothing.
    """
    votes: dict[int, list[float]] = {}
    for found, weight in zip(classes, weights, strict=True):
        if found is not None:
            votes.setdefault(found, []).append(weight or 0.0)
    # Keys stand in the order of their first members, and max() keeps the first of equals.
    return max(votes, key=lambda first: math.fsum(votes[first]), default=0)


def best(values: Sequence[float | None]) -> int:
    """Best-of-N: return the index of the highest value, the earliest of equals.

    None (no reward) is below every number; if all are None, the first sample is returned.
    """
    return max(range(len(values)), key=lambda index: _rank(values[index]))


def _rank(value: float | None) -> float:
    return -math.inf if value is None else value
