"""Group equivalent answers into classes, for votes."""

import itertools
from collections.abc import Mapping, Sequence

from fsdpo_data.answers.comparison.equivalence import compare_answers, is_words
from fsdpo_data.answers.extraction.extract import extract_answer
from fsdpo_data.answers.parsing.prose import phrase_value, plain_words

NO_ANSWER = -1  #: Class of samples that do not vote.
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


def answer_classes(answers: Sequence[str | None], agreeing_texts: Agreements) -> list[int]:
    r"""Group equivalent answers: ``1/2``, ``\frac12`` and ``0.5`` are in one class.

    Agreement is not transitive: ``5`` agrees with ``5 m`` and with ``5 cm``. Two answers are in one
    class if they agree with the same answers of this list. The order of the answers therefore has
    no effect, and an ambiguous answer joins neither of the classes that it agrees with.

    Args:
        answers: One answer per sample, by :func:`voting_answers`; None or blank without an answer.
        agreeing_texts: Result of :func:`agreeing_answers` for these answers, or for a longer list.

    Returns:
        The class of each answer: the index of its first member, or ``NO_ANSWER``.
    """
    present_answers = {answer for answer in answers if answer in agreeing_texts}
    first_members: dict[frozenset[str], int] = {}
    classes: list[int] = []
    for index, answer in enumerate(answers):
        if answer is None or answer not in agreeing_texts:
            classes.append(NO_ANSWER)
            continue
        agreeing = agreeing_texts[answer] & present_answers
        classes.append(first_members.setdefault(agreeing, index))
    return classes
