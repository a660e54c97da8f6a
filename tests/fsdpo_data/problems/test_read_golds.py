"""Golds that are solutions: the answer that they mark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fsdpo_data.answers.extraction.boxes import find_boxes
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.problems.golds import read_gold
from fsdpo_data.rewards import outcome


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"$(1-2)+(3-4)+ \dots +(99-100) = 50(-1) = \boxed{-50}.$", "-50"),
        (r"$\boxed{-50}$", "-50"),
        (r"This yields $\boxed{-b+2}$, or $\boxed{2 - b}$.", "-b+2"),
        (r"In base 9, this is $\boxed{28}$ or $\boxed{28_9}$.", "28_9"),
        (r"They are $\boxed{30^\circ}$ or $\boxed{150^\circ}.$", r"30^\circ , 150^\circ"),
        ("4 + 3 = 7\n#### 7", "7"),
        ("#### 1,000", "1,000"),
        ("the answer is 7", "the answer is 7"),  # no complete solution, so it may be the answer
        (r"\frac{1}{2}", r"\frac{1}{2}"),
    ],
)
def test_the_marked_answer_is_the_gold(gold: str, answer: str) -> None:
    assert read_gold(gold) == answer


def test_a_solution_without_an_answer_is_not_used() -> None:
    with pytest.raises(UnusableRowError, match="does not mark its final answer"):
        read_gold(
            r"No number is prime for any $n$. So the list has no member: \boxed{}. " * 2, "extract"
        )


def test_the_solutions_of_math_reward_their_own_answers(shared: Path) -> None:
    """Nine problems ask for two values, and the response repeats one; one time has no form."""
    golds = []
    completions = []
    for file in sorted((shared / "data/train/math").glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            solution = json.loads(line)["solution"]
            contents = [box.content for box in find_boxes(solution) if box.content]
            if contents:
                golds.append(solution)
                completions.append(f"So the answer is $\\boxed{{{contents[-1]}}}$.")
    rewards = outcome()(prompts=[""] * len(golds), completions=completions, answer=golds)
    assert len(rewards) == 7498
    assert (rewards.count(1.0), rewards.count(0.0), rewards.count(None)) == (7488, 9, 1)
