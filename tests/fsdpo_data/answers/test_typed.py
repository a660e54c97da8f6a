"""Generated answers of many kinds: equal meanings are correct, other meanings are incorrect."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

import pytest
from typed_pairs import KINDS, WRAPPERS, TypedPair, typed_pairs

from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.grader import MathGrader

#: Kinds whose right texts have the full detail of the gold, so any two of them agree.
COMPLETE = (
    "fraction", "interval", "union", "punctured", "set", "polynomial", "logarithm", "periodic",
    "sum", "general solution", "connective", "implication", "segments", "parallels", "subset",
    "statements", "scientific", "complex", "radical", "trigonometric", "time", "matrix",
    "equation of a logarithm", "micro", "density",
)  # fmt: skip


def failures(pairs: Iterable[TypedPair]) -> list[str]:
    """List the pairs with a wrong verdict."""
    wrong = []
    for pair in pairs:
        verdict = compare_answers(pair.gold, pair.text)
        if (verdict.status == "correct") != pair.is_equal:
            wrong.append(f"{pair.kind}: {pair.gold!r} ~ {pair.text!r} is {verdict.status}")
    return wrong


def test_some_answers_of_every_kind_are_graded_by_their_meaning() -> None:
    pairs = list(typed_pairs(2, seed=1))
    assert {pair.kind for pair in pairs} == set(KINDS)
    assert failures(pairs) == []


def test_right_answers_are_right_in_every_wrapper() -> None:
    assert wrong_wrapped_answers(1) == []


@pytest.mark.proof
def test_fifty_thousand_pairs_are_graded_by_their_meaning() -> None:
    pairs = list(typed_pairs(200))
    counts = Counter(pair.is_equal for pair in pairs)
    assert counts.total() >= 50_000 and counts[False] >= 20_000
    assert failures(pairs) == []


@pytest.mark.proof
def test_ten_thousand_right_answers_are_right_in_every_wrapper() -> None:
    assert wrong_wrapped_answers(40) == []


def wrong_wrapped_answers(count: int) -> list[str]:
    """List the wrapped right answers with a wrong verdict; answers with "$" are skipped."""
    pairs = [pair for pair in typed_pairs(count, seed=2) if pair.is_equal]
    pairs = [pair for pair in pairs if "$" not in pair.text and "**" not in pair.text]
    items = [(pair.gold, wrapper.format(pair.text)) for pair in pairs for wrapper in WRAPPERS]
    verdicts = MathGrader().grade([GradingRequest(*pair) for pair in items])
    graded_items = zip(items, verdicts, strict=True)
    return [
        f"{item} is {v.status} by {v.rule}" for item, v in graded_items if v.status != "correct"
    ]


@pytest.mark.parametrize("kind", COMPLETE)
def test_right_answers_of_a_kind_agree_with_each_other(kind: str) -> None:
    """Equivalence is symmetric and, within a kind, transitive."""
    groups: dict[str, list[str]] = defaultdict(list)
    for pair in typed_pairs(2, seed=3):
        if pair.kind == kind and pair.is_equal:
            groups[pair.gold].append(pair.text)
    disagreements = [
        (left, right)
        for gold, texts in groups.items()
        for left, right in combinations([gold, *texts], 2)
        for pair in ((left, right), (right, left))
        if compare_answers(*pair).status != "correct"
    ]
    assert groups and disagreements == []


def test_wrong_answers_are_wrong_with_sides_exchanged() -> None:
    """Percentages are skipped, because the gold decides whether the sign matters."""
    pairs = [pair for pair in typed_pairs(1, seed=4) if not pair.is_equal and pair.kind in COMPLETE]
    pairs = [pair for pair in pairs if "%" not in pair.text]
    fooled = [pair for pair in pairs if compare_answers(pair.text, pair.gold).status == "correct"]
    assert fooled == []


def test_golds_of_newer_benchmarks_equal_themselves(shared: Path) -> None:
    golds: set[str] = set()
    for file in sorted((shared / "data/newer/benchmarks").rglob("*.json*")):
        lines = file.read_text(encoding="utf-8").splitlines()
        for line in lines if file.suffix == ".jsonl" else ():
            row = json.loads(line)
            gold = row.get("answer") if isinstance(row, dict) else None
            if isinstance(gold, str | int | float) and str(gold).strip():
                golds.add(str(gold))
    assert len(golds) > 1_000
    assert [gold for gold in sorted(golds) if compare_answers(gold, gold).status != "correct"] == []
