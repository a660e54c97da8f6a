"""The grader: extract, read both sides, compare; one verdict per pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from fsdpo_data.answers import Verdict
from fsdpo_data.answers.comparing.equal import STRICT, Options, equivalent, is_words
from fsdpo_data.answers.finding.extract import extract
from fsdpo_data.answers.finding.stated import states
from fsdpo_data.answers.reading.answer import Answer, read_answer

#: A gold answer, read once and then graded against as often as there are responses.
Gold: TypeAlias = Answer


def read_gold(text: str) -> Gold:
    """Read a gold answer, for ``grade``; an empty one gives ``gold_unparsed`` verdicts."""
    return read_answer(text)


def grade(gold: Gold, response: str, options: Options = STRICT) -> Verdict:
    """Judge one response; never raises on text."""
    if not gold.text.strip():
        return Verdict("gold_unparsed", None, "empty-gold")
    found = extract(response)
    if found.answer is None:
        return Verdict("no_answer", None, found.rule)
    verdict = equivalent(gold, found.answer, options)
    in_words = not found.rule.startswith("boxed") and is_words(found.answer)
    if verdict.status == "incorrect" and found.value is not None and in_words:
        verdict = equivalent(gold, found.value, options)
    if verdict.status == "incorrect" and found.sentence and states(gold, found.sentence):
        rule = f"{found.rule}/sentence"
        return Verdict("correct", found.answer, rule, verdict.gold_form, found.sentence)
    rule = f"{found.rule}/{verdict.rule}"
    return Verdict(verdict.status, found.answer, rule, verdict.gold_form, verdict.answer_form)


class MathGrader:
    """Grades mathematical answers; see ``fsdpo_data.answers`` for the seam it fills.

    Args:
        tolerance: None for strict grading; see ``Options``.
    """

    def __init__(self, tolerance: float | None = None) -> None:
        self.options = Options(tolerance)
        self.version = "math@1" if tolerance is None else f"math@1+tolerance={tolerance:g}"

    def grade(self, items: Sequence[tuple[str, str]]) -> list[Verdict]:
        """Grade (gold, response) pairs, in order; each gold is read once."""
        golds = {text: read_gold(text) for text in dict.fromkeys(gold for gold, _ in items)}
        return [grade(golds[text], answer, self.options) for text, answer in items]
