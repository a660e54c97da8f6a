"""The golds of all benchmarks: each equals itself, and its rewrites get the right verdicts.

``gold_keeps`` rewrites golds without a change of meaning, so the rewrites must stay correct.
``gold_breaks`` changes the meaning, so the rewrites must be incorrect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmark_golds import all_golds, unique_golds
from gold_breaks import BREAKS
from gold_keeps import KEEPS
from gold_shapes import Rewrite

from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.grader import MathGrader

COUNTS = {
    "gsm8k": 1319, "math": 5000, "ocw": 272, "gk2023": 385, "svamp": 1000, "addsub": 395,
    "asdiv": 2215, "gsm-ic2": 1000, "gsm-icm": 1000,
}  # fmt: skip


def rewrite_golds(golds: list[str], rewrites: list[Rewrite]) -> Iterator[tuple[str, str, str]]:
    """Yield (name of the rewrite, gold, new text) for every new text that differs."""
    for rewrite in rewrites:
        for gold in golds:
            for text in rewrite(gold):
                if text != gold:
                    yield rewrite.__name__, gold, text


def report(failures: list[tuple[str, str, str, str]], total: int) -> str:
    """Format the failures by rewrite, with a few examples of each."""
    lines = [f"{len(failures)} of {total:,} fail"]
    for name, count in Counter(name for name, *_ in failures).most_common():
        lines.append(f"{name}: {count}")
        few = [failure for failure in failures if failure[0] == name][:12]
        lines += [f"    {gold!r} ~ {text!r}: {reason}" for _, gold, text, reason in few]
    return "\n".join(lines)


def judge(pairs: list[tuple[str, str, str]], correct: bool) -> str:
    failures = []
    for name, gold, text in pairs:
        verdict = compare_answers(gold, text)
        if (verdict.status == "correct") != correct:
            failures.append((name, gold, text, f"{verdict.status} by {verdict.rule}"))
    return report(failures, len(pairs)) if failures else ""


@pytest.fixture(scope="module")
def golds(shared: Path) -> list[str]:
    return unique_golds(shared)


@pytest.fixture(scope="module")
def unchanged_meanings(golds: list[str]) -> list[tuple[str, str, str]]:
    return list(rewrite_golds(golds, KEEPS))


@pytest.fixture(scope="module")
def changed_meanings(golds: list[str]) -> list[tuple[str, str, str]]:
    return list(rewrite_golds(golds, BREAKS))


def test_golds_of_all_benchmarks_equal_themselves(shared):
    groups = all_golds(shared)
    assert {name: len(golds) for name, golds in groups.items()} == COUNTS
    empty = [(name, i) for name, golds in groups.items() for i, g in enumerate(golds) if not g]
    assert empty == [("gk2023", 167), ("gk2023", 192)]
    unequal = [
        (name, gold)
        for name, golds in groups.items()
        for gold in dict.fromkeys(golds)
        if gold and compare_answers(gold, gold).status != "correct"
    ]
    assert unequal == []


def test_responses_with_the_literal_gold_are_correct(golds):
    for template in (
        "Step 1: 3 + 4 = 7.\nStep 2: So the answer is $\\boxed{%s}$.",
        "First, 12 is even.\nThe answer is: %s",
        "Final Answer: The final answer is %s. I hope it is correct.",
    ):
        pairs = [(gold, template % gold.strip()) for gold in golds]
        verdicts = MathGrader().grade([GradingRequest(*pair) for pair in pairs])
        wrong = [pair for pair, v in zip(pairs, verdicts, strict=True) if v.status != "correct"]
        assert wrong == []


def test_rewrites_that_keep_the_meaning_stay_correct(unchanged_meanings):
    assert not (failed := judge(unchanged_meanings, True)), failed


def test_rewrites_that_change_the_meaning_become_incorrect(changed_meanings):
    assert not (failed := judge(changed_meanings, False)), failed


def test_every_rewrite_applies_to_enough_golds(unchanged_meanings, changed_meanings):
    n_unchanged = Counter(name for name, *_ in unchanged_meanings)
    n_changed = Counter(name for name, *_ in changed_meanings)
    assert set(n_unchanged) == {rewrite.__name__ for rewrite in KEEPS}
    assert set(n_changed) == {rewrite.__name__ for rewrite in BREAKS}
    assert n_unchanged.total() > 71_000 and min(n_unchanged.values()) >= 30
    assert n_changed.total() > 44_000 and min(n_changed.values()) >= 8
