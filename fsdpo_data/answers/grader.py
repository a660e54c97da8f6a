"""The grader: extract, read both sides, compare; one verdict per pair."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from fsdpo_data.answers import Grader, Verdict
from fsdpo_data.answers.comparing.equal import Options, equivalent, is_words
from fsdpo_data.answers.finding.extract import Extraction, extract
from fsdpo_data.answers.finding.stated import states
from fsdpo_data.core.errors import SchemaError


class MathGrader:
    """Grades mathematical answers; see ``fsdpo_data.answers`` for the seam it fills.

    Args:
        tolerance: None for strict grading; see ``Options``.
        extract: Finds the answer in a response.
    """

    def __init__(
        self,
        tolerance: float | None = None,
        extract: Callable[[str], Extraction] = extract,
    ) -> None:
        self.options = Options(tolerance)
        self.version = "math@1" if tolerance is None else f"math@1+tolerance={tolerance:g}"
        self._extract = extract

    def grade(self, items: Sequence[tuple[str, str]]) -> list[Verdict]:
        """Grade (gold, response) pairs, in order; never raises on text."""
        return [self._grade_one(gold, response) for gold, response in items]

    def _grade_one(self, gold: str, response: str) -> Verdict:
        if not gold.strip():
            return Verdict("gold_unparsed", None, "empty-gold")
        found = self._extract(response)
        if found.answer is None:
            return Verdict("no_answer", None, found.rule)
        verdict = equivalent(gold, found.answer, self.options)
        if verdict.status == "incorrect" and found.value is not None and _is_prose(found):
            verdict = equivalent(gold, found.value, self.options)
        if verdict.status == "incorrect" and found.sentence and states(gold, found.sentence):
            rule = f"{found.rule}/sentence"
            return Verdict("correct", found.answer, rule, verdict.gold_form, found.sentence)
        rule = f"{found.rule}/{verdict.rule}"
        return Verdict(verdict.status, found.answer, rule, verdict.gold_form, verdict.answer_form)


def _is_prose(found: Extraction) -> bool:
    """Whether the answer is words around a value."""
    return not found.rule.startswith("boxed") and is_words(found.answer or "")


_TOLERANCE = re.compile(r"0(\.\d+)?")


def get_grader(version: str | None = None) -> Grader:
    """Return the grader of that full name, e.g. ``math@1`` or ``math@1+tolerance=0.01``.

    Raises:
        SchemaError: if this release has no such grader.
    """
    from fsdpo_data.answers.grader import MathGrader

    strict = MathGrader()
    name, plus, tolerance = (version or strict.version).partition("+tolerance=")
    if name != strict.version or (plus and not _TOLERANCE.fullmatch(tolerance)):
        raise SchemaError(
            f"grader {version!r} is not in this release, which has {strict.version} and, for "
            f"numbers within 1 %, {strict.version}+tolerance=0.01."
        )
    return MathGrader(float(tolerance)) if plus else strict
