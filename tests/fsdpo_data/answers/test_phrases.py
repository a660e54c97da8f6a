"""Trigger words of costly patterns: every possible match contains one of them."""

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
def test_every_match_of_a_pattern_contains_a_trigger_word(name: str) -> None:
    pattern = PATTERNS[name]
    for path in letter_paths(_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)):
        assert any(word in run for run in path for word in TRIGGER_WORDS[name]), (
            f"{path} has no trigger word"
        )


def letter_paths(parsed: Any) -> list[tuple[str, ...]]:
    """List the paths through a pattern, each as the runs of letters that it requires."""
    paths: list[list[str]] = [[""]]
    for op, value in parsed:
        branches = [list(branch) for branch in part_paths(str(op), value)]
        paths = [
            [*path[:-1], path[-1] + branch[0], *branch[1:]] for path in paths for branch in branches
        ]
        paths = [list(path) for path in dict.fromkeys(map(tuple, paths))]
    return [tuple(path) for path in paths]


def part_paths(op: str, value: Any) -> Iterator[tuple[str, ...]]:
    """Yield the letter runs of each path through one part; "" marks a variable side."""
    if op == "LITERAL":
        yield (chr(value).lower(),)
    elif op == "SUBPATTERN":
        yield from letter_paths(value[-1])
    elif op == "ATOMIC_GROUP":
        yield from letter_paths(value)
    elif op == "BRANCH":
        for alternative in value[1]:
            yield from letter_paths(alternative)
    elif op == "IN" and all(str(kind) == "LITERAL" for kind, _ in value):
        yield from ((chr(code).lower(),) for _, code in value)
    elif op in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and value[0]:
        yield from (("", *path, "") for path in letter_paths(value[2]))
    elif op in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT", "IN", "ANY", "NOT_LITERAL"):
        yield ("", "")
    elif op == "ASSERT" and value[0] > 0:
        yield from (("", *path, "") for path in letter_paths(value[1]))
    else:  # parts without width: \b, $, negative lookarounds
        yield ("",)
