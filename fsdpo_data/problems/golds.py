"""Gold answers: read them from the values of rows, alone or from complete solutions."""

import math
import re
from collections.abc import Sequence
from typing import Any, Literal

from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.extraction.boxes import find_boxes, last_box_content
from fsdpo_data.answers.extraction.extract import (
    extract_answer,
    extract_boxes,
    is_marked_rule,
)
from fsdpo_data.core.row_errors import UnusableRowError

#: How to read golds. ``auto`` takes the answer that a gold marks, and other golds as they are.
#: ``extract`` also refuses complete solutions that mark no answer. ``as-given`` takes all golds as
#: they are.
GoldReading = Literal["auto", "as-given", "extract"]
HASHES = "####"  #: The mark of the final answer in GSM8K.
MIN_SOLUTION_CHARS = 40  #: Shorter texts are no complete solutions.
MAX_SOLUTION_FRACTION = 0.1  #: More golds that are read as complete solutions cause a warning.
#: Texts in place of a gold answer, in lower case. ``None`` is an answer in GSM-Plus.
NO_GOLD_TEXTS = frozenset({"n/a", "nan", "null", "proof", "notfound", "not found"})
_SENTENCE_END = re.compile(r"[.!?]\s|\n")


def read_gold(value: Any, reading: GoldReading = "auto") -> str:
    """Return the gold answer of a field: a text, a number, or a list of one of them.

    Args:
        value: The value of the field.
        reading: How to read it.

    Raises:
        UnusableRowError: if the value is no gold answer, with the reason.
    """
    gold = gold_text(value)
    if reading == "as-given":
        return gold
    answer = marked_answer(gold)
    if answer is not None:
        return answer
    if reading == "extract" and is_solution(gold):
        raise UnusableRowError("the solution in the answer field does not mark its final answer")
    return gold


def gold_text(value: Any) -> str:
    """Return a gold answer as text: ``145.0`` as ``145``, a list of one element as that element.

    Raises:
        UnusableRowError: if the answer is empty, or neither a text nor a number.
    """
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise UnusableRowError(f"the answer is {value}")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UnusableRowError(f"the answer is a {type(value).__name__}, not text or a number")
    text = str(value)
    if not text.strip():
        raise UnusableRowError("the answer is empty")
    return text


def means_no_gold(text: str) -> bool:
    """Return whether a text, such as "N/A", is in place of a gold answer."""
    return text.strip().lower() in NO_GOLD_TEXTS


def marked_answer(gold: str) -> str | None:
    """Return the final answer that a gold marks; None if it marks none.

    A box and GSM8K's ``####`` are marks in any text. Other marks, such as "the answer is", count
    only in a complete solution.

    Raises:
        UnusableRowError: if ``####`` is the end of the gold.
    """
    if boxes := [box for box in find_boxes(gold) if box.content]:
        return _common_form([box.content for box in boxes]) or extract_boxes(gold, boxes).answer
    if HASHES in gold:
        return parse_gsm8k_gold(gold)
    extracted = extract_answer(gold) if is_solution(gold) else None
    is_marked = extracted is not None and is_marked_rule(extracted.rule)
    return extracted.answer if extracted is not None and is_marked else None


def has_mark(gold: Any) -> bool:
    """Return whether a gold has a box with a content, or GSM8K's ``####``."""
    return isinstance(gold, str) and (
        HASHES in gold or any(box.content for box in find_boxes(gold))
    )


def is_solution(gold: str) -> bool:
    """Return whether a gold is a complete solution: a long text of several sentences or lines."""
    text = gold.strip()
    return len(text) >= MIN_SOLUTION_CHARS and _SENTENCE_END.search(text) is not None


def describe_solutions(golds: Sequence[str]) -> str:
    """Describe golds that were read as complete solutions; return an empty text if few were."""
    n_solutions = sum(map(is_solution, golds))
    if n_solutions <= MAX_SOLUTION_FRACTION * len(golds):
        return ""
    return (
        f"{n_solutions:,} of {len(golds):,} gold answers look like complete solutions, so hardly "
        "any response will match them. Mark their final answers with \\boxed or ####, and read "
        "them with `gold=auto`. `gold=extract` leaves out solutions without a mark."
    )


def parse_gsm8k_gold(value: Any) -> str:
    """Return GSM8K's gold answer: the text after the last ``####``, or the full text."""
    if isinstance(value, str):
        value = value.rpartition(HASHES)[2].strip()
    return gold_text(value)


def parse_boxed_gold(value: Any) -> str:
    """Return the content of a solution's last box.

    Raises:
        UnusableRowError: if the solution has no box, or its last box is empty.
    """
    content = last_box_content(str(value))
    if content is None:
        raise UnusableRowError("the solution has no \\boxed answer")
    if not content.strip():
        raise UnusableRowError("the solution's \\boxed is empty")
    return content


def _common_form(forms: Sequence[str]) -> str | None:
    """Return the form that equals all others, if several boxes have forms of one answer."""
    for gold in forms if len(forms) > 1 else ():
        if all(compare_answers(gold, form).status == "correct" for form in forms):
            return gold
    return None
