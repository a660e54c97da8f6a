"""Whether two answers agree: from equal text over exact values to evaluation at points."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from fsdpo_data.answers import Outcome, Verdict
from fsdpo_data.answers.numbers import Number, agree, read_number

_SPACE = re.compile(r"\s+|\\[,;:! ]|\\(?:left|right)(?![A-Za-z])|\$")


@dataclass(frozen=True, slots=True)
class Options:
    """How answers are compared.

    Attributes:
        tolerance: None for strict comparison. Otherwise a prediction also agrees with a number
            if it rounds to it at the gold's digits or has at most this relative error.
    """

    tolerance: float | None = None


STRICT = Options()


def equivalent(gold: str, answer: str, options: Options = STRICT) -> Verdict:
    """Compare two bare answers; never raises on text."""
    if not gold.strip():
        return Verdict("gold_unparsed", answer, "empty-gold")
    if not answer.strip():
        return Verdict("no_answer", answer, "empty-answer")
    gold_form, answer_form = canonical(gold), canonical(answer)
    if gold_form == answer_form:
        return Verdict("correct", answer, "text", gold_form, answer_form)
    left, right = _number(gold), _number(answer)
    same = left is not None and right is not None and agree(left, right)
    status: Outcome = "correct" if same else "incorrect"
    return Verdict(status, answer, "number", gold_form, answer_form)


def canonical(answer: str) -> str:
    """Return a key that only equivalent answers share."""
    text = _SPACE.sub("", answer)
    return text.replace("dfrac", "frac").replace("tfrac", "frac").rstrip(".")


@lru_cache(maxsize=65_536)
def _number(text: str) -> Number | None:
    return read_number(text)
