"""What grading costs, in calls of Python functions: a number that no busy machine changes."""

from __future__ import annotations

import sys

import pytest

from fsdpo_data.answers.grader import MathGrader

STEPS = "\n".join(f"Step {at}: There are {at} * 7 = {at * 7} apples." for at in range(1, 9))
FRACTION = "$\\boxed{\\frac{x^2-40811}{x-40813} + \\sqrt{2}}$"
#: Loads what is loaded on first use.
WARM_UP = ("z^2 - \\sqrt{5}", "$\\boxed{\\frac{z^3}{z} + \\sqrt{5}}$")
#: A gold and a response that no other test has, so that neither is kept from one; and the most
#: calls that the grading may make, about a quarter above what it made when this was written. Where
#: a change goes over it, find what it asks of every text that only few texts need.
COSTS = {
    "announced": ("40851", f"{STEPS}\nThe answer is: 40851", 58),
    "announced, wrong": ("40853", f"{STEPS}\nThe answer is: 40855", 82),
    "boxed": ("40857", f"{STEPS}\nSo it is $\\boxed{{40857}}$.", 66),
    "last number": ("40859", f"{STEPS}\nSo there are 40859 apples.", 118),
    "expression": ("x + 1 + \\sqrt{40817}", FRACTION, 2_640),
}


@pytest.mark.parametrize("case", COSTS)
def test_grading_makes_few_calls(case: str) -> None:
    gold, response, most = COSTS[case]
    assert counted(gold, response) <= most


def counted(gold: str, response: str) -> int:
    """Count the calls of Python functions that one grading makes."""
    grader = MathGrader()
    grader.grade([WARM_UP])
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        grader.grade([(gold, response)])
    finally:
        sys.setprofile(before)
    return calls
