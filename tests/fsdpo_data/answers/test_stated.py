"""Responses that state a gold in many wordings are correct for this gold and for no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmark_golds import unique_golds

from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.extraction.extract import extract_answer
from fsdpo_data.answers.grader import MathGrader

WORK = "Step 1: We have 12 + 7 = 19 things, of which $x=4$ are used.\nStep 2: Then $a^2 = 25$.\n"

#: Responses around GOLD, or around the gold as a FORMULA.
MARKED = {
    "boxed": "So we get $\\boxed{GOLD}$.",
    "boxed in a display": "Therefore the answer is \\[\\boxed{GOLD}\\] as required.",
    "boxed twice": "Thus \\boxed{GOLD}.\n\n**Final Answer**\n\n\\boxed{GOLD}",
    "boxed, then checked": "The answer is $\\boxed{GOLD}$.\n\nTo check: 3 + 4 = 7, fine.",
    "fbox": "so \\fbox{GOLD} is it.",
    "the answer is:": "The answer is: GOLD",
    "the answer is, as a formula": "Therefore, the answer is FORMULA.",
    "the answer is, in bold": "Therefore, the answer is **GOLD**.",
    "Minerva": "Final Answer: The final answer is FORMULA. I hope it is correct.",
    "GSM8K": "#### GOLD",
    "A:": "A: GOLD",
    "a bold label": "**Answer:** FORMULA",
    "a label, then a farewell": "**Answer**: GOLD\n\nLet me know if you have questions!",
    "a heading": "### Final Answer\nFORMULA",
    "an item": "- **Answer**: FORMULA",
    "a reason after it": "Answer: FORMULA. This is because 3+4=7.",
    "a made-up problem after it": "The answer is: GOLD.\n\nQuestion: And 5+6?\nThe answer is: 11",
    "an end token": "The answer is: GOLD<|im_end|>",
    "carriage returns": "\r\nThe answer is: GOLD\r\n",
    "a line of its own": "The answer is\nFORMULA",
}
#: Responses that state the gold without a mark.
UNMARKED = {"the solution is": "The solution is FORMULA.", "therefore": "Therefore, FORMULA."}
#: Golds that cannot be extracted from such a sentence, with the reason.
NOT_EXTRACTED = {
    "90\\text{ square\nunits}": "a line break inside \\text ends the line",
    "x_{0} \\cos (\\omega t)+$ $\\dot{x}_{0} \\sin (\\omega t) / \\omega": "it is in two formulas",
}


@pytest.fixture(scope="module")
def golds(shared: Path) -> list[str]:
    return [gold.strip() for gold in unique_golds(shared)]


def responses(template: str, golds: list[str]) -> Iterator[tuple[str, str]]:
    for gold in golds:
        formula = gold if "$" in gold else f"${gold}$"
        yield gold, WORK + template.replace("GOLD", gold).replace("FORMULA", formula)


def wrong_pairs(pairs: list[tuple[str, str]]) -> list[tuple[str, str | None]]:
    verdicts = MathGrader().grade([GradingRequest(*pair) for pair in pairs])
    graded_pairs = zip(pairs, verdicts, strict=True)
    return [
        (gold, verdict.answer) for (gold, _), verdict in graded_pairs if verdict.status != "correct"
    ]


@pytest.mark.parametrize("name", MARKED)
def test_a_marked_gold_is_right(golds: list[str], name: str) -> None:
    pairs = list(responses(MARKED[name], golds))
    assert len(pairs) > 4_500
    assert wrong_pairs(pairs) == []
    assert all(extract_answer(response).marked_answer is not None for _, response in pairs[:200])


@pytest.mark.parametrize("name", UNMARKED)
def test_an_unmarked_gold_is_right(golds: list[str], name: str) -> None:
    lost = [gold for gold, _ in wrong_pairs(list(responses(UNMARKED[name], golds)))]
    assert set(lost) <= NOT_EXTRACTED.keys()


def test_the_gold_of_another_problem_is_wrong(golds: list[str]) -> None:
    """Each gold is compared with the next one; only golds with equal values agree."""
    next_golds = [*golds[1:], golds[0]]
    pairs = [(g, f"So it is \\boxed{{{o}}}.") for g, o in zip(golds, next_golds, strict=True)]
    verdicts = MathGrader().grade([GradingRequest(*pair) for pair in pairs])
    right = [
        (gold, other)
        for gold, other, verdict in zip(golds, next_golds, verdicts, strict=True)
        if verdict.status == "correct"
    ]
    unlike = [pair for pair in right if digits(pair[0]) != digits(pair[1])]
    assert unlike == [("$\\frac{4}{5}$", "$0.8$")]


def digits(gold: str) -> list[str]:
    return re.findall(r"[0-9.]+", gold)
