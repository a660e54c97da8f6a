r"""Small changes of a gold answer: a digit, a sign, a name, a relation, a swap, a part.

Unlike the rewrites of `gold_breaks`, the changes know nothing about the form of a gold. Most of
them make it wrong; `changed_values` finds those that keep its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

MAX_PLACES = 8  #: Most matches of a gold that one kind of change is applied to.
#: An index of a constant such as `c_1` or `C_{2}`, whose number is arbitrary.
_CONSTANT_INDEX = re.compile(r"(?<![A-Za-z\\])[CcKkAB]_\{?\d+\}?")
#: A base, as in `25_6`, or an index.
_NAME = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")
_COMMAND = re.compile(r"\\[A-Za-z]+|\\.")
#: What is not a name: commands, words, and the arguments that choose a layout.
_LAYOUT = re.compile(r"\\(?:begin|end)\s*\{[^{}]*\}(?:\{[lcr|]*\})?|\\[A-Za-z]+|\\.")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
#: The sign that takes the place of each relation or connective.
RELATIONS: dict[str, tuple[str, ...]] = {
    "=": ("\\neq ", "<"), "\\neq": ("=",), "\\ne ": ("=",), "<": (">", "\\leq "),
    ">": ("<", "\\geq "), "\\leq": ("\\geq", "<"), "\\geq": ("\\leq", ">"),
    "\\le ": ("\\ge ", "<"), "\\ge ": ("\\le ", ">"), "\\cup": ("\\cap",), "\\cap": ("\\cup",),
    "\\in ": ("\\notin ",), "\\approx": ("\\neq",), "\\equiv": ("\\not\\equiv",),
    "\\subset": ("\\supset",), "\\perp": ("\\parallel",), "\\parallel": ("\\perp",),
    " and ": (" or ",), " or ": (" and ",), "\\text{ and }": ("\\text{ or }",),
    "\\text{ or }": ("\\text{ and }",),
}  # fmt: skip
_RELATION = re.compile("|".join(map(re.escape, sorted(RELATIONS, key=len, reverse=True))))
_SEPARATOR = re.compile(
    r"\s*(?:(?<!\\)[,;](?!\\?!)(?:\s*(?:and|or)\b)?|\band\b|\bor\b|\\cup(?![A-Za-z]))\s*"
)


class Change(NamedTuple):
    """A gold and a text that differs from it in one place."""

    kind: str  #: What was changed: ``digit``, ``sign``, ``name``, ...
    gold: str  #: The gold.
    text: str  #: The changed text.


def change_gold(gold: str) -> Iterator[Change]:
    """Yield every change of a gold once."""
    seen = {gold}
    for kind, changes in _KINDS.items():
        for text in changes(gold):
            if text not in seen:
                seen.add(text)
                yield Change(kind, gold, text)


def _replace(gold: str, span: tuple[int, int], text: str) -> str:
    return gold[: span[0]] + text + gold[span[1] :]


def _is_inside(position: int, spans: list[tuple[int, int]]) -> bool:
    return any(start <= position < end for start, end in spans)


def _digits(gold: str) -> Iterator[str]:
    """Replace one digit by the next; indexes of arbitrary constants stay."""
    fixed = [match.span() for match in _CONSTANT_INDEX.finditer(gold)]
    matches = [m for m in re.finditer(r"\d", gold) if not _is_inside(m.start(), fixed)]
    for match in matches[:MAX_PLACES]:
        digit = str((int(match.group()) + 1) % 10)
        yield _replace(gold, match.span(), digit)


def _signs(gold: str) -> Iterator[str]:
    """Turn one plus into a minus, or the other way round; add a minus to a number alone."""
    matches = [
        match
        for match in re.finditer(r"(?<![eE{(\[,\\])\+|-(?!>)", gold)
        if not (gold[: match.start()][-1:].isalpha() and gold[match.end() :][:1].isalpha())
    ]
    for match in matches[:MAX_PLACES]:
        is_leading = (
            not gold[: match.start()].strip() or gold[: match.start()].rstrip()[-1] in "({[,=^"
        )
        new = "-" if match.group() == "+" else "" if is_leading else "+"
        yield _replace(gold, match.span(), new)
    if gold[:1].isdigit() or gold.startswith("\\frac"):
        yield f"-{gold}"


def _name_matches(gold: str) -> list[re.Match[str]]:
    layout = [match.span() for match in _LAYOUT.finditer(gold)]
    layout += [
        m.span() for m in re.finditer(r"\\(?:text|mbox|mathrm|operatorname)\s*\{[^{}]*\}", gold)
    ]
    return [
        match
        for match in _NAME.finditer(gold)
        if not _is_inside(match.start(), layout)
        and match.group() not in ("a", "A", "I")
        and not re.fullmatch(r"[ ]?[A-Za-z]{2,}.*", gold[match.end() :])
    ]


def _names(gold: str) -> Iterator[str]:
    """Replace one letter at one place by another letter that the gold does not have."""
    matches = _name_matches(gold)
    new = (
        next(letter for letter in "wqvhbujmsdgkpryz" if letter not in gold or letter == "z")
        if matches
        else ""
    )
    if len({match.group() for match in matches}) > 1 or len(matches) > 1:
        for match in matches[:MAX_PLACES]:
            yield _replace(gold, match.span(), new)


def _relations(gold: str) -> Iterator[str]:
    for match in list(_RELATION.finditer(gold))[:MAX_PLACES]:
        for new in RELATIONS[match.group()]:
            yield _replace(gold, match.span(), new)


def _swap(gold: str, matches: list[re.Match[str]]) -> Iterator[str]:
    for first, second in combinations(matches[:5], 2):
        if first.group() != second.group():
            text = _replace(gold, second.span(), first.group())
            yield _replace(text, first.span(), second.group())


def _swapped_numbers(gold: str) -> Iterator[str]:
    fixed = [match.span() for match in _CONSTANT_INDEX.finditer(gold)]
    yield from _swap(gold, [m for m in _NUMBER.finditer(gold) if not _is_inside(m.start(), fixed)])


def _swapped_names(gold: str) -> Iterator[str]:
    yield from _swap(gold, _name_matches(gold))


def _dropped_parts(gold: str) -> Iterator[str]:
    """Drop one part of a list outside brackets, or one side of a union."""
    separators = [
        match
        for match in _SEPARATOR.finditer(gold)
        if not _depth(gold[: match.start()]) and not re.match(r"\d{3}(?!\d)", gold[match.end() :])
    ]
    ends = [(0, 0), *(match.span() for match in separators), (len(gold), len(gold))]
    if len(ends) < 3:
        return
    for index in range(len(ends) - 1):
        start = ends[index][0] if index else 0
        end = ends[index + 1][0] if index else ends[1][1]
        yield (gold[:start] + gold[end:]).strip()


def _depth(text: str) -> int:
    return sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))


_KINDS = {
    "digit": _digits, "sign": _signs, "name": _names, "relation": _relations,
    "swapped numbers": _swapped_numbers, "swapped names": _swapped_names,
    "dropped part": _dropped_parts,
}  # fmt: skip
