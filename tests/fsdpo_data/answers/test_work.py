"""The cost of grading in Python function calls, which does not depend on the machine's load."""

from __future__ import annotations

import sys

import pytest

from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.grader import MathGrader

STEPS = "\n".join(
    f"Step {number}: There are {number} * 7 = {number * 7} apples." for number in range(1, 9)
)
FRACTION = "$\\boxed{\\frac{x^2-40811}{x-40813} + \\sqrt{2}}$"
#: A gold and a response whose grading loads everything that is loaded at the first use.
WARM_UP = ("z^2 - \\sqrt{5}", "$\\boxed{\\frac{z^3}{z} + \\sqrt{5}}$")
#: For each case: a gold, a response and the maximum number of calls. The texts occur in no other
#: test, so they are not cached. The maximum is about 25 % above the number at the time of writing.
#: If a change exceeds it, look for new work on every text that only few texts need.
COSTS = {
    "announced": ("40851", f"{STEPS}\nThe answer is: 40851", 84),
    "announced, wrong": ("40853", f"{STEPS}\nThe answer is: 40855", 114),
    "boxed": ("40857", f"{STEPS}\nSo it is $\\boxed{{40857}}$.", 86),
    "last number": ("40859", f"{STEPS}\nSo there are 40859 apples.", 150),
    "expression": ("x + 1 + \\sqrt{40817}", FRACTION, 2_640),
}


@pytest.mark.parametrize("case", COSTS)
def test_grading_makes_few_calls(case: str) -> None:
    gold, response, max_calls = COSTS[case]
    assert count_calls(gold, response) <= max_calls


def count_calls(gold: str, response: str) -> int:
    """Count the Python function calls of one grading."""
    grader = MathGrader()
    grader.grade([GradingRequest(*WARM_UP)])
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    old_profile = sys.getprofile()
    sys.setprofile(count)
    try:
        grader.grade([GradingRequest(gold, response)])
    finally:
        sys.setprofile(old_profile)
    return calls
