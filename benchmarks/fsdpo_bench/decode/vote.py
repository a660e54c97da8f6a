"""Choose one of K samples: self-consistency, weighted vote and best-of-N."""

import itertools
import math
from collections.abc import Mapping, Sequence

from fsdpo_data.answers.comparison.equivalence import compare_answers, is_words
from fsdpo_data.answers.extraction.extract import extract_answer
from fsdpo_data.answers.parsing.prose import phrase_value, plain_words

#: The answers that agree with an answer, the answer itself included, by answer.
Agreements = Mapping[str, frozenset[str]]


def voting_answers(answers: Sequence[str | None], responses: Sequence[str]) -> list[str | None]:
    """Return the answer with which each sample votes; None for samples that do not vote.

    Where a response neither marks an answer nor states a value, the grader compares its last
    sentence with the gold answer. Such a sentence does not vote, unless it is a phrase with a
    value, such as "Yes, it is."
    """
    return [
        None if answer is None or _is_last_sentence(answer, response) else answer
        for answer, response in zip(answers, responses, strict=True)
    ]


def _is_last_sentence(answer: str, response: str) -> bool:
    """Whether an answer is only the last sentence of its response, in words without a value."""
    if not is_words(answer) or phrase_value(plain_words(answer)) is not None:
        return False
    extracted = extract_answer(response)
    return extracted.rule == "last-sentence" and extracted.sentence == answer


def agreeing_answers(answers: Sequence[str | None]) -> Agreements:
    """Compare all pairs of different answers, and return the agreeing answers of each."""
    texts = list(dict.fromkeys(answer for answer in answers if answer and answer.strip()))
    agreeing_texts = {text: {text} for text in texts}
    for first, second in itertools.combinations(texts, 2):
        # The comparison treats its first argument as the gold answer, so try both orders.
        if _is_agreement(first, second) or _is_agreement(second, first):
            agreeing_texts[first].add(second)
            agreeing_texts[second].add(first)
    return {text: frozenset(agreeing) for text, agreeing in agreeing_texts.items()}


def _is_agreement(gold: str, answer: str) -> bool:
    return compare_answers(gold, answer).status == "correct"


def answer_classes(answers: Sequence[str | None], agreeing_texts: Agreements) -> list[int | None]:
    r"""Group equivalent answers: ``1/2``, ``\frac12`` and ``0.5`` are in one class.

    Agreement is not transitive: ``5`` agrees with ``5 m`` and with ``5 cm``. Two answers are in one
    class if they agree with the same answers of this list. The order of the answers therefore has
    no effect, and an ambiguous answer joins neither of the classes that it agrees with.

    Args:
        answers: One answer per sample, by :func:`voting_answers`; None or blank without an answer.
        agreeing_texts: Result of :func:`agreeing_answers` for these answers, or for a longer list.

    Returns:
        The class of each answer: the index of its first member. None for samples without an answer.
    """
    present_answers = {answer for answer in answers if answer in agreeing_texts}
    first_members: dict[frozenset[str], int] = {}
    classes: list[int | None] = []
    for index, answer in enumerate(answers):
        if answer is None or answer not in agreeing_texts:
            classes.append(None)
            continue
        agreeing = agreeing_texts[answer] & present_answers
        classes.append(first_members.setdefault(agreeing, index))
    return classes


def self_consistency(classes: Sequence[int | None]) -> int | None:
    """Return the index of the first sample of the largest class (Wang et al. 2023).

    Among equal classes, the class with the earliest sample wins. Samples without an answer do not
    vote. Without any answer, the result is None.
    """
    return weighted_vote(classes, [1.0] * len(classes))


def weighted_vote(classes: Sequence[int | None], weights: Sequence[float | None]) -> int | None:
    """Return the index of the first sample of the class with the largest sum of weights.

    Among equal sums, the class with the earliest sample wins. Without any answer, the result is
    None.

    Args:
        classes: Result of :func:`answer_classes`.
        weights: One weight per sample. None, for a sample that the scorer cannot read, counts as 0.
    """
    votes: dict[int, list[float]] = {}
    for answer_class, weight in zip(classes, weights, strict=True):
        if answer_class is not None:
            votes.setdefault(answer_class, []).append(weight or 0.0)
    # The keys are in the order of their first members, and max() returns the first of equal keys.
    return max(votes, key=lambda answer_class: math.fsum(votes[answer_class]), default=None)


def best_of_n(values: Sequence[float | None]) -> int:
    """Return the index of the sample with the highest reward; the earliest of equal ones.

    Args:
        values: One solution reward per sample. None is below every number. If all are None, the
            result is 0.
    """
    ranks = [-math.inf if value is None else value for value in values]
    return ranks.index(max(ranks))
