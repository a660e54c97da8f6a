"""What belongs to the value of a number in prose: 2√3, ln 2, 3 + 2i, 11 5/6, 1.2e5, 5!, 1 234.

A part of a value is not the answer. So a number is extended to both sides until nothing more
belongs to its value.
"""

from typing import NamedTuple

from fsdpo_data.answers.extraction.phrases import load_phrases

_PATTERNS = load_phrases("attachments")
_MAX_PARTS = 12  #: Maximum parts that are added on both sides.
_MINUS_SIGNS = "-−–"
_CONTEXT_CHARS = 24  #: Characters before a number in which a part of its value is searched.


class Exclamation(NamedTuple):
    """An answer in prose with a "!" after it: a factorial, or the end of a sentence."""

    #: The answer without the sign, and with one or two.
    readings: tuple[str, ...]
    #: Whether all signs belong to the answer: in a formula, where no sentence ends, or where the
    #: text is nothing but the answer.
    is_factorial: bool


def find_exclamation(answer: str, text: str) -> Exclamation | None:
    """Return the "!" after the answer of a text, or None if it has none or cannot be a factorial.

    Args:
        answer: The answer, with or without the sign.
        text: The text, in which the last occurrence of the answer counts.
    """
    plain = answer.rstrip("!")
    if "!" not in text or not _PATTERNS["factorial_operand"].search(plain):
        return None
    start = text.rfind(plain)
    sign = _PATTERNS["exclamation"].match(text, start + len(plain)) if start >= 0 else None
    if sign is None or _PATTERNS["operand_start"].search(text, max(start - 1, 0), start):
        return None
    readings = tuple(plain + "!" * n_signs for n_signs in range(len(sign["signs"]) + 1))
    is_complete_text = text.strip("* \n") == readings[-1]
    is_in_formula = _PATTERNS["factorial_end"].match(text, sign.end()) is not None
    return Exclamation(readings, is_complete_text or is_in_formula or not plain[-1].isdigit())


def extend_number(text: str, start: int, end: int, *, first: int = 0) -> tuple[int, int]:
    """Return the start and the end of the value to which a number belongs.

    Args:
        text: The text, in which NUL characters stand for formulas.
        start: Offset of the number.
        end: Offset after the number.
        first: The first offset at which the value may begin.
    """
    context = max(start - _CONTEXT_CHARS, first)
    is_integer = _PATTERNS["integer"].fullmatch(text, start, end) is not None
    fraction_or_group = _PATTERNS["after_integer"].match(text, end) if is_integer else None
    if fraction_or_group and not _PATTERNS["label"].search(text, context, start):
        end = fraction_or_group.end()
    elif not (
        _PATTERNS["term_after"].match(text, end)
        or _PATTERNS["bracket_before_factor"].match(text, end)
        or _PATTERNS["term_before"].search(text, context, start)
        or (text[start] in _MINUS_SIGNS and start > first)
    ):
        return start, end  # most numbers
    for _ in range(_MAX_PARTS):
        previous = (start, end)
        start = _extend_left(text, start, first)
        end = _extend_right(text, start, end)
        is_in_brackets = start > first and text[start - 1] == "("
        if is_in_brackets and _PATTERNS["bracket_before_factor"].match(text, end):
            start -= 1
            end += 1
        if previous == (start, end):
            break
    return start, end


def _extend_left(text: str, start: int, first: int) -> int:
    """Return the start of a function, a root or a term before a number, or ``start``."""
    context = max(start - _CONTEXT_CHARS, first)
    is_signed = text[start] in _MINUS_SIGNS
    pattern = _PATTERNS["term_before_sign" if is_signed else "term_before"]
    term = pattern.search(text, context, start)
    return term.start() if term else start


def _extend_right(text: str, start: int, end: int) -> int:
    """Return the end of the signs, letters or terms after a number, or ``end``."""
    term = _PATTERNS["term_after"].match(text, end)
    end = term.end() if term else end
    is_open = text.count("(", start, end) > text.count(")", start, end)
    arguments = _PATTERNS["arguments"].match(text, end) if is_open else None
    return arguments.end() if arguments else end
