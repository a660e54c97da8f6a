"""Answers that span several lines at the end of a text: items, tables, equations, formulas."""

import re
from itertools import takewhile

from fsdpo_data.answers.extraction.boxes import text_tail
from fsdpo_data.answers.extraction.phrases import load_phrases
from fsdpo_data.answers.extraction.values import find_values

_PATTERNS = load_phrases("multi_part")

#: Characters at the end that are searched.
TAIL_CHARS = 4_000
#: Maximum length of a response that can be nothing but its answer.
MAX_BARE_ANSWER_CHARS = 300
_LIST_LINE = re.compile(r"\s*\Z|\s*(?:[-*•|]|\(?\d{1,2}[.)])\s")  # or a blank line
#: The bullet or the number of an item: "- 12", "1. 12".
_BULLET = re.compile(r"\A(?:[-•]|\d[.)])\s+")
_ITEM = _PATTERNS["item"]
_NAMED_VALUE = _PATTERNS["named_value"]
_CELL_DELIMITERS = re.compile(r"\\\(\s*(.*?)\s*\\\)")
_BOX = re.compile(r"\$?\\boxed\{([^{}]*)\}\$?")
_MAX_PARALLEL_LINES = 16  #: Maximum lines in which lines of equal shape are searched.
_MAX_SKIPPED_LINES = 1  #: Maximum lines without a value after each line with one.
_MAX_ITEMS = 8  #: Maximum items of a closing list, and maximum rows of a table.


def closing_equations(text: str) -> str | None:
    """Return the equations at the end of a text that define at least two names, one per line."""
    lines = [
        line
        for line in text_tail(text, TAIL_CHARS).replace("**", "").splitlines()
        if line.strip(" $[]\\")
    ]
    equations: dict[str, str] = {}
    while lines:
        match = _PATTERNS["equation"].fullmatch(lines.pop())
        if not match or match[2] in equations:
            break
        equations[match[2]] = match[1]
    return " , ".join(reversed(equations.values())) if len(equations) > 1 else None


def parallel_values(text: str, count: int) -> str | None:
    """Return the values of the last lines of equal shape, one per line, joined with commas.

    "Anna has 3 apples." and "Ben has 5 apples." have equal shapes. Lines without a value between
    them do not count. The result is None unless there are exactly ``count`` lines.
    """
    shape = ""
    values: list[str] = []
    n_skipped = 0
    lines = text_tail(text, TAIL_CHARS).splitlines()[-_MAX_PARALLEL_LINES:]
    for line in reversed(lines):
        line_values = find_values(line) or find_values(_BOX.sub(r"$\1$", line))
        if not line_values:
            n_skipped += bool(line.strip())
            if n_skipped > _MAX_SKIPPED_LINES:
                break
            continue
        line_shape = _PATTERNS["shape_word"].sub("w", line[: line_values[-1].start]).strip()
        if _PATTERNS["denial"].search(line):
            return None
        if values and line_shape != shape:
            break
        n_skipped = 0
        shape = line_shape
        values.insert(0, line_values[-1].text.strip("$*. "))
    if len(values) != count:
        return None
    return in_order(values, "\n".join(lines))


def in_order(values: list[str], text: str) -> str:
    """Join values with commas, as a tuple if words of the text give them an order."""
    joined = " , ".join(values)
    return f"({joined})" if _PATTERNS["position"].search(text) else joined


def announced_list(text: str, start: int, answer: str) -> str:
    """Return the values of a list or a table after a marker, or a single item without its bullet.

    Args:
        text: The text.
        start: Offset of the end of the marker.
        answer: The announced answer, which begins like an item or a row.
    """
    text_before, found_answer, text_after = text[start:].partition(answer)
    first_line, *lines = text_after.splitlines(keepends=True) or [""]
    list_lines = list(takewhile(_LIST_LINE.match, lines))
    values = closing_list(
        "".join((text[:start], text_before, found_answer, first_line, *list_lines))
    )
    if values is not None:
        return values
    is_display = text_before.rstrip().endswith(("\\[", "$$", "\\(")) or "```" in text_before
    is_item = "\n" in text_before and not is_display
    is_single = found_answer and not "".join(list_lines).strip()
    return _BULLET.sub("", answer) if is_item and is_single else answer


def closing_list(text: str) -> str | None:
    """Return the values of the items at the end of a text.

    The items follow a header, have names, or fill a table. Values of parts and positions
    ("Blank 1: 5") form a tuple, because they have an order.
    """
    lines = text_tail(text, TAIL_CHARS).rstrip().splitlines()
    if len(lines) == 1 and len(text) <= MAX_BARE_ANSWER_CHARS:
        parts = [_NAMED_VALUE.fullmatch(line) for line in _PATTERNS["part_boundary"].split(text)]
        return _join_values([part for part in parts if part]) if all(parts) else None
    if lines and lines[-1].endswith("|"):
        return _closing_table(lines)
    items = _pop_matches(lines, _ITEM)
    while items and lines and not lines[-1].strip():
        lines.pop()
    if items:
        return _join_values(items) if not lines or _PATTERNS["header"].search(lines[-1]) else None
    named_values = _pop_matches([line for line in lines if line.strip()], _NAMED_VALUE)
    if len(named_values) == 1 and named_values[0]["value"].count("=") == 1:
        return named_values[0]["value"].strip("*$. ")  # "Equation: y = 2x + 1"
    return _join_values(named_values)


def _pop_matches(lines: list[str], pattern: re.Pattern[str]) -> list[re.Match[str]]:
    """Remove the last lines that match a pattern, and return their matches in order."""
    matches: list[re.Match[str]] = []
    while lines and len(matches) <= _MAX_ITEMS and (match := pattern.fullmatch(lines[-1])):
        matches.insert(0, match)
        lines.pop()
    return matches


def _join_values(items: list[re.Match[str]]) -> str | None:
    """Join the values of at least two items, or return None if an item has no value."""
    values = [_NAMED_VALUE.fullmatch(item["value"]) or item for item in items]
    if values and _PATTERNS["total"].match(items[-1][0].lstrip("-*• \t")):
        return values[-1]["value"].strip("*$. ")
    joined = _join_list([value["value"].strip("*$. ") for value in values])
    has_order = joined and all(item.groupdict().get("position") for item in items)
    return f"({joined})" if has_order else joined


def _join_list(values: list[str], min_count: int = 2) -> str | None:
    """Join short values with commas, or return None for too few values and for prose."""
    are_values = all(
        _PATTERNS["value"].search(value) and len(value.split()) <= 4 for value in values
    )
    return " , ".join(values) if are_values and len(values) >= min_count else None


def _closing_table(lines: list[str]) -> str | None:
    """Return the solutions in a table at the end of a text.

    The solutions are tuples, one per row, or the values of a single column. A total in the last
    row is the whole answer. A first column with names or case numbers does not count.
    """
    rows = _pop_table(lines)
    has_separator = len(rows) >= 3 and not set("".join(rows[1])) - set(":- ")
    if not has_separator or len(set(map(len, rows))) > 1:
        return None
    del rows[1]
    if all(_PATTERNS["row_verdict"].fullmatch(row[-1]) for row in rows[1:]):
        rows = [row[:-1] for row in rows if not _PATTERNS["rejection"].fullmatch(row[-1])]
    header, *body = rows
    if not header or not body:
        return None
    is_name = _PATTERNS["name"].fullmatch
    if len(header) > 1 and not is_name(header[0]):
        labels = [row.pop(0) for row in (header, *body)][1:]
        if _PATTERNS["total"].match(labels[-1]):
            return body[-1][-1]
        if len(header) == 1 and all(map(is_name, labels)):
            equations = [f"{name} = {row[0]}" for name, row in zip(labels, body, strict=True)]
            return _join_list(equations, min_count=1)
    if len(header) == 1:
        return _join_list([row[0] for row in body], min_count=1)
    if all(map(is_name, header)):
        return " , ".join(f"({' , '.join(row)})" for row in body)
    return None


def _pop_table(lines: list[str]) -> list[list[str]]:
    """Remove the table rows at the end of some lines, and return their cells."""
    rows: list[list[str]] = []
    while lines and len(rows) <= _MAX_ITEMS and lines[-1].rstrip().endswith("|"):
        cells = lines.pop().strip("| ").split("|")
        rows.insert(0, [_CELL_DELIMITERS.sub(r"\1", cell.strip(" *$")) for cell in cells])
    return rows


def closing_formulas(text: str) -> str | None:
    """Return the displayed formulas at the end of a text, joined with commas."""
    text = text_tail(text, TAIL_CHARS).rstrip(". ∎\n")
    formulas: list[str] = []
    for opener, closer in (("\\[", "\\]"), ("$$", "$$")):
        while text.endswith(closer) and (start := text.rfind(opener, 0, len(text) - 2)) >= 0:
            formulas.insert(0, text[start + 2 : -2].strip().rstrip(".,").strip())
            text = text[:start].rstrip()
    return " , ".join(formulas) or None
