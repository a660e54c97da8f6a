"""Requests to grade: tolerance, further golds and thinking belong to each request."""

from __future__ import annotations

import pytest
from verdicts import grade_requests

from fsdpo_data.answers import GradingRequest, Verdict
from fsdpo_data.answers.grader import UNCLOSED_THINKING_RULE, MathGrader
from fsdpo_data.answers.parsing.read import ParsedAnswer, read_answer
from fsdpo_data.answers.thinking import ThinkingSpan


def grade(request: GradingRequest, grader_tolerance: float | None = None) -> Verdict:
    [verdict] = MathGrader(grader_tolerance).grade([request])
    return verdict


@pytest.mark.parametrize(
    ("request_tolerance", "grader_tolerance", "status"),
    [
        (None, None, "incorrect"),
        (None, 0.05, "correct"),
        (0.05, None, "correct"),
        (0.0, 0.05, "incorrect"),
    ],
)
def test_the_tolerance_of_a_request_comes_first(
    request_tolerance: float | None, grader_tolerance: float | None, status: str
) -> None:
    request = GradingRequest("4.30", r"\boxed{4.40}", tolerance=request_tolerance)
    assert grade(request, grader_tolerance).status == status


def test_requests_with_different_tolerances_share_a_call() -> None:
    requests = [
        GradingRequest("100", r"\boxed{101}", tolerance=tolerance) for tolerance in (None, 0.02)
    ]
    assert [verdict.status for verdict in grade_requests(requests)] == ["incorrect", "correct"]


def test_any_of_several_golds_is_enough() -> None:
    request = GradingRequest("4", r"\boxed{5}", alternative_golds=["5", "6"])
    assert grade(request).status == "correct"
    wrong = grade(request._replace(response=r"\boxed{7}"))
    assert (wrong.status, wrong.gold_form) == ("incorrect", "4")


@pytest.mark.parametrize(
    ("alternative", "status"), [("5", "correct"), ("6", "undecided"), ("raise", "undecided")]
)
def test_a_gold_that_raises_an_exception_hides_no_other(
    alternative: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_gold(text: str) -> ParsedAnswer:
        if text == "raise":
            raise ZeroDivisionError("no rule foresees this")
        return read_answer(text)

    monkeypatch.setattr("fsdpo_data.answers.grader.read_answer", read_gold)
    for golds in (["raise", alternative], [alternative, "raise"]):
        request = GradingRequest(golds[0], r"\boxed{5}", alternative_golds=golds[1:])
        assert grade(request).status == status


def test_only_the_text_after_the_thinking_is_graded() -> None:
    thinking = "<think>It is 4.</think>"
    span = ThinkingSpan(end=len(thinking), closed=True, start=len("<think>"))
    request = GradingRequest("5", f"{thinking}It is 5.", thinking=span)
    assert grade(request).status == "correct"
    assert grade(request._replace(gold="4")).status == "incorrect"


def test_unclosed_thinking_has_no_answer_unless_thinking_is_graded() -> None:
    text = r"<think>It is \boxed{4}. But wait, 5"
    span = ThinkingSpan(end=len(text), closed=False, start=len("<think>"))
    request = GradingRequest("4", text, thinking=span)
    assert grade(request) == Verdict("no_answer", None, UNCLOSED_THINKING_RULE)
    assert grade(request._replace(grade_thinking=True)).status == "correct"
    # The last number of unfinished thinking is not an answer.
    assert grade(request._replace(gold="5", grade_thinking=True)).status == "incorrect"


@pytest.mark.parametrize(
    "response",
    [
        r"\boxed{8} or maybe not, I",
        r"So it is \boxed{8}. Hmm, 8 is",
        r"That gives \boxed{8}. Wait, the",
        r"\boxed{8}. But let me check the",
        "The answer is 8, or maybe not, I",
        r"The answer is \boxed{8}. Alternatively, we",
        r"So it is \boxed{8}. Let me re-check the",
        r"So it is \boxed{8}. Let me just make sure that",
        r"\boxed{8} seems plausible, but I should verify by",
        r"\boxed{8}, I guess. Then",
        r"\boxed{8}. No, that is the",
    ],
)
def test_a_doubt_that_is_cut_off_leaves_no_answer(response: str) -> None:
    request = GradingRequest("8", response, finish_reason="length")
    assert grade(request).status == "no_answer"
    assert grade(request._replace(finish_reason="stop")).status == "correct"


@pytest.mark.parametrize(
    "response",
    [
        r"So it is \boxed{8}. To see this, note that",
        r"Is it \boxed{7}? Wait, no. So the answer is 8, and this",
        "The answer is 8.\n\nThis holds because the",
        r"So it is \boxed{8}. We verify this: if x = 8, no two of",
    ],
)
def test_an_answer_before_a_truncated_explanation_counts(response: str) -> None:
    assert grade(GradingRequest("8", response, finish_reason="length")).status == "correct"


@pytest.mark.parametrize("tag", ["think", "thought", "thinking", "reasoning"])
def test_an_open_tag_anywhere_makes_a_text_thinking(tag: str) -> None:
    assert grade(GradingRequest("8", rf"Well, <{tag}> \boxed{{8}}, I")).status == "no_answer"
    assert grade(GradingRequest("8", rf"Is it \boxed{{7}}? </{tag}> It is 8.")).status == "correct"


@pytest.mark.parametrize(
    "response",
    [
        r"Half of it is \boxed{8}. So all of it is \boxed{1",
        "Thus, the final answer is:\n\\[\n\\boxed{8",
        "So $x = \\boxed{8}$. Therefore the total is\n\\[\n\\boxed{",
    ],
)
def test_a_box_that_is_cut_off_leaves_no_answer(response: str) -> None:
    assert grade(GradingRequest("8", response, finish_reason="length")).status == "no_answer"
