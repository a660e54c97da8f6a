"""Words that are looked for before a costly pattern is: every match holds one of them."""

import re
from collections.abc import Iterator
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from fsdpo_data.answers.extraction.phrases import TRIGGER_WORDS, load_phrases

PATTERNS = {
    name: pattern
    for module in ("retractions", "unmarked")
    for name, pattern in load_phrases(module).items()
    if name in TRIGGER_WORDS
}
assert PATTERNS.keys() == TRIGGER_WORDS.keys()


@pytest.mark.parametrize("name", TRIGGER_WORDS)
def test_every_way_to_match_holds_a_word(name: str) -> None:
    found = PATTERNS[name]
    for way in ways(_parser.parse(found.pattern, found.flags & ~re.UNICODE)):
        assert any(word in run for run in way for word in TRIGGER_WORDS[name]), f"{way} holds none"


def ways(parsed: Any) -> list[tuple[str, ...]]:
    """List the ways through a pattern: the runs of letters that each cannot do without."""
    found: list[list[str]] = [[""]]
    for op, value in parsed:
        branches = [list(each) for each in branch(str(op), value)]
        found = [[*way[:-1], way[-1] + more[0], *more[1:]] for way in found for more in branches]
        found = [list(way) for way in dict.fromkeys(map(tuple, found))]
    return [tuple(way) for way in found]


def branch(op: str, value: Any) -> Iterator[tuple[str, ...]]:
    """Yield the runs of letters of each way through one part; "" on both sides of what is open."""
    if op == "LITERAL":
        yield (chr(value).lower(),)
    elif op == "SUBPATTERN":
        yield from ways(value[-1])
    elif op == "ATOMIC_GROUP":
        yield from ways(value)
    elif op == "BRANCH":
        for each in value[1]:
            yield from ways(each)
    elif op == "IN" and all(str(kind) == "LITERAL" for kind, _ in value):
        yield from ((chr(code).lower(),) for _, code in value)
    elif op in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and value[0]:
        yield from (("", *each, "") for each in ways(value[2]))
    elif op in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT", "IN", "ANY", "NOT_LITERAL"):
        yield ("", "")
    elif op == "ASSERT" and value[0] > 0:
        yield from (("", *each, "") for each in ways(value[1]))
    else:  # what has no width: \b, $, what must not stand there
        yield ("",)
