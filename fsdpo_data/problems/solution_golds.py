"""Gold answers that are complete solutions: recognise them, and extract their final answers."""

import re
from collections.abc import Sequence
from typing import Literal

from fsdpo_data.answers.extraction.extract import extract_answer, is_marked_rule
from fsdpo_data.problems.row_formats import UnusableRowError

#: How to read golds: as they are, or with the final answer of complete solutions extracted.
GoldReading = Literal["as-given", "extract"]
MIN_SOLUTION_CHARS = 40  #: Length from which a text with a final-answer mark may be a solution.
_FINAL_MARK = re.compile(r"####|\\f?box(?:ed)?\b|\b(?:the|final) answer is\b", re.I)
_SENTENCE_END = re.compile(r"[.!?]\s|\n")


def is_solution(gold: str) -> bool:
    """Return whether a gold is a complete solution.

    It is long, has a final-answer mark, and has a sentence before the mark.
    """
    if len(gold) < MIN_SOLUTION_CHARS:
        return False
    marks = list(_FINAL_MARK.finditer(gold))
    return bool(marks) and _SENTENCE_END.search(gold, 0, marks[-1].start() + 1) is not None


def count_solutions(golds: Sequence[str]) -> int:
    """Return the number of golds that are complete solutions, if they are most of the golds."""
    n_solutions = sum(map(is_solution, golds))
    return n_solutions if 2 * n_solutions > len(golds) else 0


def describe_solutions(golds: Sequence[str]) -> str:
    """Describe golds that are mostly complete solutions; return an empty text for other golds."""
    n_solutions = count_solutions(golds)
    if not n_solutions:
        return ""
    return (
        f"{n_solutions} of {len(golds)} gold answers look like complete solutions, so hardly any "
        "response will match them"
    )


def extract_gold(gold: str) -> str:
    """Return the final answer of a gold that is a complete solution; return other golds as given.

    Raises:
        UnusableRowError: if the solution does not mark its answer.
    """
    if not is_solution(gold):
        return gold
    extracted = extract_answer(gold)
    if extracted.answer is None or not is_marked_rule(extracted.rule):
        raise UnusableRowError("the solution in the answer field does not mark its final answer")
    return extracted.answer
