"""The measurement of rules: alternatives of regular expressions, switched off and recorded."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[3] / "benchmarks/grading"


@pytest.fixture(scope="module")
def measure_rules():
    sys.path.insert(0, str(SCRIPTS))
    yield importlib.import_module("measure_rules")
    sys.path.remove(str(SCRIPTS))


def test_alternatives_at_every_depth(measure_rules):
    pattern = r"(?i)a[|)]|(?:b|c\|(?!d|e))f"
    branches = measure_rules.find_branches(pattern)
    texts = [(pattern[b.start : b.end], b.is_negated) for b in branches]
    assert texts == [("d", True), ("e", True), ("b", False), (r"c\|(?!d|e)", False),
                     ("a[|)]", False), (r"(?:b|c\|(?!d|e))f", False)]  # fmt: skip


def test_every_rule_of_the_tables_can_be_switched_off(measure_rules):
    tables = measure_rules.read_tables()
    rules = [rule for name in tables for rule in measure_rules.list_rules(name, tables[name])]
    assert {rule.file for rule in rules} == tables.keys() - {"number_words"}
    for rule in rules[::7]:
        table: Any = measure_rules.without_rule(tables, rule)[rule.file]
        assert table != tables[rule.file], rule
        for key in rule.keys[:-1]:
            table = table[key]
        is_key = (rule.file, rule.keys[0]) in measure_rules.PATTERN_KEYS
        if rule.kind == "branch":
            re.compile(list(table)[-1] if is_key else table[rule.keys[-1]])


def test_a_recording_pattern_finds_the_alternatives_that_match(measure_rules):
    pattern = r"x(?:ab|a)c|(?:d|e)+"
    rules = [
        measure_rules.Rule("t", ("p",), "branch", index, pattern[branch.start : branch.end])
        for index, branch in enumerate(measure_rules.find_branches(pattern))
    ]
    complete_rule = measure_rules.Rule("t", ("p",), "pattern", 0, "p")
    branches = measure_rules.find_branches(pattern)
    spans = [(rule, b.start, b.end) for rule, b in zip(rules, branches, strict=True)]
    hits: set[Any] = set()
    recording = measure_rules.RecordingPattern(
        pattern, 0, [*spans, (complete_rule, 0, len(pattern))], hits
    )
    assert recording.search("zz") is None and not hits
    assert recording.sub("-", "xac de") == "- -"
    assert {rule.text for rule in hits} == {"a", "x(?:ab|a)c", "d", "e", "(?:d|e)+", "p"}
