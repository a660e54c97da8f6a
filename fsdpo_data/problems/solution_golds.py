"""Gold answers that are complete solutions: recognise them, and extract their final answers."""

import re
from collections.abc import Sequence
from typing import Literal

from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.extraction.boxes import find_boxes
from fsdpo_data.answers.extraction.extract import extract_answer, is_marked_rule
from fsdpo_data.problems.row_formats import UnusableRowError, parse_gsm8k_gold

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
    """Return the final answer that a gold marks; return a gold without a mark as given.

    A box and GSM8K's ``####`` are marks in any text. Other marks, such as "the answer is", count
    only in a complete solution.

    Raises:
        UnusableRowError: if the solution does not mark its answer.
    """
    has_box = any(box.content for box in find_boxes(gold))
    if not has_box and "####" in gold:
        return parse_gsm8k_gold(gold)
    if not has_box and not is_solution(gold):
        return gold
    extracted = extract_answer(gold)
    if extracted.answer is None or not is_marked_rule(extracted.rule):
        raise UnusableRowError("the solution in the answer field does not mark its final answer")
    return _common_form([box.content for box in find_boxes(gold)]) or extracted.answer


def _common_form(forms: Sequence[str]) -> str | None:
    """Return the form that equals all others, if several boxes have forms of one answer."""
    for gold in forms if len(forms) > 1 else ():
        if all(compare_answers(gold, form).status == "correct" for form in forms):
            return gold
    return None
