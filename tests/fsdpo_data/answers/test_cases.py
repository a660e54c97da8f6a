"""Our labelled cases: every pair and every response gets the verdict of a careful human grader.

Each line of ``data/grader_cases.jsonl`` is one case: its kind, the gold, an answer or a response,
whether it is correct, and its origin. With ``undecided``, no difference can be proven, so that the
verdict ``incorrect`` is wrong, too. The origin ``from`` says that the case was written by hand,
or names the template or rewrite that made it from such a case.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fsdpo_data.answers import GradingRequest, Verdict
from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.grader import MathGrader

CASES = Path(__file__).parents[2] / "data/grader_cases.jsonl"
Case = dict[str, Any]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]


def failures(cases: list[Case], verdicts: list[Verdict]) -> str:
    """Format the cases with a wrong verdict by kind; return "" if there are none."""
    wrong = [
        (case, verdict)
        for case, verdict in zip(cases, verdicts, strict=True)
        if (verdict.status == "correct") != case["correct"]
        or (case.get("undecided") and verdict.status == "incorrect")
    ]
    kinds = Counter(case["kind"] for case, _ in wrong)
    lines = [f"{len(wrong)} of {len(cases)} cases fail"] if wrong else []
    for kind, count in kinds.most_common():
        lines.append(f"{kind}: {count}")
        for case, verdict in wrong:
            if case["kind"] == kind:
                text = case["answer"] if "answer" in case else case["response"][-120:]
                label = "should be correct" if case["correct"] else "should be wrong"
                label = "should be undecided" if case.get("undecided") else label
                lines.append(f"    {case['gold']!r} ~ {text!r} {label}: {verdict}")
    return "\n".join(lines)


def test_every_answer_pair_gets_its_label(cases):
    pairs = [case for case in cases if "answer" in case]
    verdicts = [compare_answers(case["gold"], case["answer"]) for case in pairs]
    assert not (report := failures(pairs, verdicts)), report


def test_every_response_gets_its_label(cases):
    responses = [case for case in cases if "response" in case]
    verdicts = MathGrader().grade(
        [GradingRequest(case["gold"], case["response"]) for case in responses]
    )
    assert not (report := failures(responses, verdicts)), report


def test_an_answer_in_a_box_gets_the_label_of_the_bare_answer(cases):
    pairs = [
        case
        for case in cases
        if "answer" in case and "box" not in case["answer"] and not case["answer"].endswith("\\")
    ]
    responses = [f"Step 1: 2 + 2 = 4.\nSo it is $\\boxed{{{case['answer']}}}$." for case in pairs]
    golds = [case["gold"] for case in pairs]
    verdicts = MathGrader().grade(list(map(GradingRequest, golds, responses)))
    assert not (report := failures(pairs, verdicts)), report


def test_every_gold_of_the_set_equals_itself(cases):
    golds = dict.fromkeys(case["gold"] for case in cases)
    assert [gold for gold in golds if compare_answers(gold, gold).status != "correct"] == []


def test_verdicts_do_not_depend_on_which_side_is_the_gold(cases):
    """In other kinds the gold decides the required detail of the answer."""
    symmetric = {
        "number", "fraction", "mixed", "repeating", "scientific", "words", "tuple", "vector",
        "set", "list", "pm", "interval", "union", "set-builder", "matrix", "complex",
        "expression", "radical", "pi", "trig-log-exp", "factorial-binomial", "base",
    }  # fmt: skip
    pairs = [case for case in cases if case["kind"] in symmetric and "answer" in case]
    verdicts = [compare_answers(case["answer"], case["gold"]) for case in pairs]
    assert not (report := failures(pairs, verdicts)), report


def test_the_set_has_enough_cases_and_kinds(cases):
    pairs = [case for case in cases if "answer" in case]
    responses = [case for case in cases if "response" in case]
    assert len(pairs) >= 7_400
    assert len(responses) >= 1_000
    assert sum(case["correct"] for case in pairs) >= 3_100
    assert sum(not case["correct"] for case in pairs) >= 3_400
    assert len({case["kind"] for case in pairs}) >= 50
    assert len({case["kind"] for case in responses}) >= 20
    assert all(case["from"] for case in cases)
