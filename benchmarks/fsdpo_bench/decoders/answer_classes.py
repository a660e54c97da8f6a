"""Group equivalent answers into classes, for votes.

Array suffixes: ``M`` samples of a problem, ``C`` classes of answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from fsdpo_data.answers.comparison.equivalence import compare_answers, is_words
from fsdpo_data.answers.parsing.prose import phrase_value, plain_words
from fsdpo_data.core.entities import split_verdict_by
from fsdpo_data.core.lazy import np

NO_ANSWER = -1  #: Class of samples that do not vote.


@dataclass(frozen=True, slots=True)
class AnswerClasses:
    """The classes of the answers of M samples of a problem.

    Answers of one class agree with the same answers. Answers of two classes may agree, too: ``5``
    agrees with ``5 m`` and with ``5 cm``, which differ from each other.
    """

    class_M: np.ndarray  #: Class of each sample, from 0 to C - 1, or ``NO_ANSWER``.
    agreement_CC: np.ndarray  #: Whether the answers of two classes agree; true on the diagonal.

    def select(self, indices: Sequence[int]) -> AnswerClasses:
        """Return the classes of some of the samples."""
        return AnswerClasses(self.class_M[indices], self.agreement_CC)


def voting_answers(answers: Sequence[str | None], verdicts_by: Sequence[str]) -> list[str | None]:
    """Return the answer with which each sample votes; None for samples that do not vote.

    Where a response neither marks an answer nor states a value, the grader compares its last
    sentence with the gold answer. Such a sentence does not vote, unless it is a phrase with a
    value, such as "Yes, it is."

    Args:
        answers: The extracted answer of each sample; None without one.
        verdicts_by: Who decided about each sample, with the rule that found the answer.
    """
    return [
        None if answer is None or _is_last_sentence(answer, verdict_by) else answer
        for answer, verdict_by in zip(answers, verdicts_by, strict=True)
    ]


def _is_last_sentence(answer: str, verdict_by: str) -> bool:
    """Whether an answer is only the last sentence of its response, in words without a value."""
    _, rules = split_verdict_by(verdict_by)
    if not rules.startswith("last-sentence"):
        return False
    return is_words(answer) and phrase_value(plain_words(answer)) is None


def answer_classes(answers: Sequence[str | None]) -> AnswerClasses:
    r"""Group equivalent answers: ``1/2``, ``\frac12`` and ``0.5`` are in one class.

    Args:
        answers: One answer per sample, by :func:`voting_answers`; None or blank without an answer.
    """
    agreeing_texts = _agreeing_answers(answers)
    # Answers of one class agree with the same answers.
    numbers = {
        agreeing: index for index, agreeing in enumerate(dict.fromkeys(agreeing_texts.values()))
    }
    class_by_text = {text: numbers[agreeing] for text, agreeing in agreeing_texts.items()}
    class_M = [class_by_text.get(answer or "", NO_ANSWER) for answer in answers]
    agreement_CC = np.zeros((len(numbers), len(numbers)), dtype=bool)
    for text, agreeing in agreeing_texts.items():
        for other in agreeing:
            agreement_CC[class_by_text[text], class_by_text[other]] = True
    return AnswerClasses(np.array(class_M, dtype=int), agreement_CC)


def _agreeing_answers(answers: Sequence[str | None]) -> dict[str, frozenset[str]]:
    """Compare all pairs of different answers, and return the answers that agree with each."""
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
