"""The grader: extract, read both sides, compare; one verdict per pair."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from fsdpo_data.answers import Outcome, Verdict
from fsdpo_data.answers.extract import extract, last_number
from fsdpo_data.answers.numbers import Number, agree, read_number

_SPACE = re.compile(r"\s+|\\[,;:! ]|\\(?:left|right)(?![A-Za-z])|\$")


class MathGrader:
    """Grades mathematical answers; see ``fsdpo_data.answers`` for the seam it fills."""

    version = "math@1"

    def grade(self, items: Sequence[tuple[str, str]]) -> list[Verdict]:
        """Grade (gold, response) pairs, in order; never raises on text."""
        return [self._grade_one(gold, response) for gold, response in items]

    def _grade_one(self, gold: str, response: str) -> Verdict:
        if not gold.strip():
            return Verdict("gold_unparsed", None, "empty-gold")
        found = extract(response)
        if found.answer is None:
            return Verdict("no_answer", None, found.rule)
        gold_form, answer_form = _key(gold), _key(found.answer)
        if gold_form == answer_form:
            return Verdict("correct", found.answer, f"{found.rule}/text", gold_form, answer_form)
        answer = found.answer
        if found.rule in ("whole", "last-sentence", "answer-is"):
            answer = last_number(answer) or answer
        left, right = _number(gold), _number(answer)
        same = left is not None and right is not None and agree(left, right)
        status: Outcome = "correct" if same else "incorrect"
        return Verdict(status, found.answer, f"{found.rule}/number", gold_form, answer_form)


@lru_cache(maxsize=65_536)
def _number(text: str) -> Number | None:
    return read_number(text)


def _key(text: str) -> str:
    return _SPACE.sub("", text).replace("dfrac", "frac").replace("tfrac", "frac").rstrip(".")
