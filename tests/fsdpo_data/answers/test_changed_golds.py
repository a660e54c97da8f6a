"""Golds with one change: none is correct without a reason, and odd texts have a verdict.

The tests take a sample. ``benchmarks/grading/changed_golds.py`` grades all changes of all golds.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from changed_golds import changed_sets, reason_to_accept
from changed_values import keeps_value
from damaged_texts import damaged_pairs
from gold_changes import Change, change_gold

from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.response import grade

SAMPLE_GOLDS = 400  #: Golds of the sample.
SAMPLE_TEXTS = 1_000  #: Random and damaged texts of the sample.


@pytest.fixture(scope="module")
def golds(shared: Path) -> list[str]:
    return changed_sets(shared)


def test_a_changed_gold_is_not_correct_without_a_reason(golds: list[str]) -> None:
    sample = random.Random(3).sample(golds, SAMPLE_GOLDS)
    changes = [change for gold in sample for change in change_gold(gold)]
    assert len(changes) > 4 * SAMPLE_GOLDS
    accepted = [c for c in changes if compare_answers(c.gold, c.text, 0.0).status == "correct"]
    assert [change for change in accepted if not reason_to_accept(change)] == []


def test_every_kind_of_change_is_made() -> None:
    changes = [*change_gold("x_1 = 2 and x_2 < 3, y = -4"), *change_gold("c_1x + 5y")]
    assert {change.kind for change in changes} == {
        "digit", "sign", "name", "relation", "swapped numbers", "swapped names", "dropped part",
    }  # fmt: skip
    assert Change("digit", "c_1x + 5y", "c_2x + 5y") not in changes


@pytest.mark.parametrize(
    ("gold", "text", "expected"),
    [
        ("x + y", "y + x", True),
        ("1, 2", "2, 1", True),
        ("x = 1, x = 2", "x = 2, x = 1", True),
        (r"\frac{1}{2}", "0.5", True),
        ("2x - y = 4", "4 = 2x - y", True),
        ("y = c_1e^x + c_2", "y = c_1 - c_2e^x", True),
        ("1, 2", "1, 3", False),
        ("x - y", "y - x", False),
        ("y = c_1e^{2x} + c_2", "y = c_1e^x + c_2", False),
        ("(1, 2)", "(2, 1)", False),
        ("1, 2, 2", "1, 2", False),
    ],
)
def test_the_evaluator_of_changes_compares_values(gold: str, text: str, expected: bool) -> None:
    assert keeps_value(gold, text) == expected


def test_random_and_damaged_texts_have_a_verdict(golds: list[str]) -> None:
    for gold, response in damaged_pairs(golds, SAMPLE_TEXTS, random.Random(1)):
        verdict = grade(gold, response)
        assert not verdict.rule.endswith("error"), (gold, response, verdict)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\frac{\mathbf{v}\cdot\mathbf{w}}{\mathbf{v}\cdot\mathbf{v}}\mathbf{v}", r"\mathbf{w}"),
        (
            r"C(m)=\begin{cases} 10 & 0 \leq m \leq 500 \\ m-490 & m>500 \end{cases}",
            r"C(m)=\begin{cases} 10 & 0 < m \leq 500 \\ m-490 & m>500 \end{cases}",
        ),
        (
            r"\prod_{i=1}^n \lfloor \frac{a_i}{3} \rfloor",
            r"\prod_{i=1}^n \lfloor \frac{a_i}{4} \rfloor",
        ),
    ],
)
def test_changes_that_have_no_reason_are_not_correct(gold: str, answer: str) -> None:
    assert compare_answers(gold, answer, 0.0).status != "correct"
    assert compare_answers(gold, gold, 0.0).status == "correct"


def test_the_evaluator_of_changes_reads_no_index_that_does_not_end() -> None:
    assert not keeps_value("x_{1 + 2", "x_{2 + 1")
