"""One answer over several lines that end a text: items, rows of a table, equations, formulas."""

import re

from fsdpo_data.answers.extraction.boxes import text_tail
from fsdpo_data.answers.extraction.phrases import load_phrases

_PATTERNS = load_phrases("several")

#: Characters at the end that are searched.
TAIL_CHARS = 4_000
#: Longest response that can be nothing but its answer.
MAX_BARE_ANSWER_CHARS = 300
_ITEM, _PAIR = _PATTERNS["item"], _PATTERNS["pair"]
_MAX_ITEMS = 8  #: Most items of a closing list, and most rows of a table.


def closing_equations(text: str) -> str | None:
    """Return the equations of two or more names, on lines of their own, that end a text."""
    lines = [
        line
        for line in text_tail(text, TAIL_CHARS).replace("**", "").splitlines()
        if line.strip(" $[]\\")
    ]
    named: dict[str, str] = {}
    while (
        lines and (found := _PATTERNS["equation"].fullmatch(lines.pop())) and found[2] not in named
    ):
        named[found[2]] = found[1]
    return " , ".join(reversed(named.values())) if len(named) > 1 else None


def closing_list(text: str) -> str | None:
    """Return the values of the items that end a text: below a header, named, or in a table.

    Values of parts and places ("Blank 1: 5") are a tuple, because those have an order.
    """
    lines = text_tail(text, TAIL_CHARS).rstrip().splitlines()
    if len(lines) == 1 and len(text) <= MAX_BARE_ANSWER_CHARS:
        pairs = [_PAIR.fullmatch(line) for line in _PATTERNS["named_parts"].split(text)]
        return _join_values([pair for pair in pairs if pair]) if all(pairs) else None
    if lines and lines[-1].endswith("|"):
        return _closing_table(lines)
    items = _pop_matches(lines, _ITEM)
    while items and lines and not lines[-1].strip():
        lines.pop()
    if items:
        return _join_values(items) if not lines or _PATTERNS["header"].search(lines[-1]) else None
    named = _pop_matches([line for line in lines if line.strip()], _PAIR)
    if len(named) == 1 and named[0]["value"].count("=") == 1:
        return named[0]["value"].strip("*$. ")  # "Equation: y = 2x + 1"
    return _join_values(named)


def _pop_matches(lines: list[str], pattern: re.Pattern[str]) -> list[re.Match[str]]:
    found: list[re.Match[str]] = []
    while lines and len(found) <= _MAX_ITEMS and (item := pattern.fullmatch(lines[-1])):
        found.insert(0, item)
        lines.pop()
    return found


def _join_values(items: list[re.Match[str]]) -> str | None:
    """Join the values of two or more items; None if one of them has none."""
    pairs = [_PAIR.fullmatch(item["value"]) or item for item in items]
    listed = _join_list([pair["value"].strip("*$. ") for pair in pairs])
    return (
        f"({listed})" if listed and all(item.groupdict().get("place") for item in items) else listed
    )


def _join_list(values: list[str], least: int = 2) -> str | None:
    valued = all(_PATTERNS["value"].search(each) and len(each.split()) <= 4 for each in values)
    return " , ".join(values) if valued and len(values) >= least else None


def _closing_table(lines: list[str]) -> str | None:
    """Return the solutions that the rows of a table are: tuples of its names, or their values.

    A last row that sums up is the answer alone; a column of names or numbers of cases is none.
    """
    rows: list[list[str]] = []
    while lines and len(rows) <= _MAX_ITEMS and lines[-1].rstrip().endswith("|"):
        cells = lines.pop().strip("| ").split("|")
        rows.insert(0, [cell.strip(" *$\\()") for cell in cells])
    if len(rows) < 3 or set("".join(rows[1])) - set(":- ") or len(set(map(len, rows))) > 1:
        return None
    del rows[1]
    if all(_PATTERNS["mark"].fullmatch(row[-1]) for row in rows[1:]):
        rows = [row[:-1] for row in rows if not _PATTERNS["rejected"].fullmatch(row[-1])]
    head, *body = rows
    if not head or not body:
        return None
    if len(head) > 1 and not _PATTERNS["letter"].fullmatch(head[0]):
        labels = [row.pop(0) for row in (head, *body)][1:]
        if _PATTERNS["total"].match(labels[-1]):
            return body[-1][-1]
        if len(head) == 1 and all(map(_PATTERNS["letter"].fullmatch, labels)):
            named = [f"{name} = {row[0]}" for name, row in zip(labels, body, strict=True)]
            return _join_list(named, least=1)
    if len(head) == 1:
        return _join_list([row[0] for row in body], least=1)
    if all(map(_PATTERNS["letter"].fullmatch, head)):
        return " , ".join(f"({' , '.join(row)})" for row in body)
    return None


def closing_formulas(text: str) -> str | None:
    """Return the displayed formulas that a text ends on."""
    text = text_tail(text, TAIL_CHARS).rstrip(". ∎\n")
    found: list[str] = []
    for opener, closer in (("\\[", "\\]"), ("$$", "$$")):
        while text.endswith(closer) and (start := text.rfind(opener, 0, len(text) - 2)) >= 0:
            found.insert(0, text[start + 2 : -2].strip().rstrip(".,").strip())
            text = text[:start].rstrip()
    return " , ".join(found) or None
