"""Choose one of K samples: by vote, by weighted vote, by reward. All are given as plain values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from fsdpo_data.answers.comparing.equal import equivalent

Agreements = Mapping[str, frozenset[str]]


def agreements(answers: Sequence[str | None]) -> Agreements:
    """Return for each different answer the answers that it agrees with, itself among them."""
    texts = list(dict.fromkeys(each for each in answers if each and each.strip()))
    found = {text: {text} for text in texts}
    for one, other in itertools.combinations(texts, 2):
        if any(equivalent(*pair).status == "correct" for pair in ((one, other), (other, one))):
            found[one].add(other)
            found[other].add(one)
    return {text: frozenset(others) for text, others in found.items()}


def answer_classes(
    answers: Sequence[str | None], agree: Agreements | None = None
) -> list[int | None]:
    r"""Group equivalent answers (``1/2``, ``\frac12`` and ``0.5`` are one).

    To agree is not transitive: ``5`` agrees with ``5 m`` and with ``5 cm``. Answers are in one
    class if they agree with the same of these answers, so their order decides nothing, and one that
    could be two things stands for neither.

    Args:
        answers: As extracted; None where there is none.
        agree: :func:`agreements` of these answers and maybe more; worked out if None.

    Returns:
        For each answer the index of its class's first member; None where there is no answer.
    """
    agree = agreements(answers) if agree is None else agree
    given = {each for each in answers if each in agree}
    firsts: dict[frozenset[str], int] = {}
    return [
        firsts.setdefault(agree[each] & given, index)
        if each is not None and each in agree
        else None
        for index, each in enumerate(answers)
    ]


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
    ranks = [-math.inf if value is None else value for value in values]
    return ranks.index(max(ranks))
