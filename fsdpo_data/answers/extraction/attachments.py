"""What belongs to the value of a number in prose: 2√3, ln 2, 3 + 2i, 11 5/6, 1.2e5, 5!, 1 234.

A part of a value is not the answer. So a number is extended to both sides until nothing more
belongs to its value.
"""

from fsdpo_data.answers.extraction.phrases import load_phrases

_PATTERNS = load_phrases("attachments")
_MAX_PARTS = 12  #: Maximum parts that are added on both sides.
_CONTEXT_CHARS = 24  #: Characters before a number in which a part of its value is searched.


def whole_value(text: str, start: int, end: int, *, first: int = 0) -> tuple[int, int]:
    """Return the start and the end of the value to which a number belongs.

    Args:
        text: The text, in which NUL characters stand for formulas.
        start: Offset of the number.
        end: Offset after the number.
        first: The first offset at which the value may begin.
    """
    integer = _PATTERNS["integer"].fullmatch(text, start, end)
    if integer and (rest := _PATTERNS["after_integer"].match(text, end)):
        is_label = _PATTERNS["label"].search(text, max(start - _CONTEXT_CHARS, first), start)
        end = end if is_label else rest.end()
    for _ in range(_MAX_PARTS):
        previous = (start, end)
        context = max(start - _CONTEXT_CHARS, first)
        name = "before_sign" if text[start] in "-−–" else "before"
        if before := _PATTERNS[name].search(text, context, start):
            start = before.start()
        if after := _PATTERNS["after"].match(text, end):
            end = after.end()
        is_open = text.count("(", start, end) > text.count(")", start, end)
        if is_open and (arguments := _PATTERNS["arguments"].match(text, end)):
            end = arguments.end()
        if (
            _PATTERNS["bracket"].match(text, end)
            and text[start - 1 : start] == "("
            and start > first
        ):
            start -= 1
            end += 1
        if previous == (start, end):
            break
    return start, end
