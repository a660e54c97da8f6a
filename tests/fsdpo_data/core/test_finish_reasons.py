"""Finish reasons: only what is listed ends a turn."""

import pytest

from fsdpo_data.core.finish_reasons import (
    describe_unknown_finish_reasons,
    read_finish_reason,
    unknown_finish_reason,
)


@pytest.mark.parametrize(
    "value",
    ["stop", "STOP", "FinishReason.STOP", "stop\n", "eos_token", "end_turn", "COMPLETE", None, " "],
)
def test_listed_reasons_end_a_turn(value: str | None) -> None:
    assert (read_finish_reason(value), unknown_finish_reason(value)) == ("stop", "")


@pytest.mark.parametrize(
    "value",
    [
        *("repetition", "model_context_window_exceeded", "refusal", "SAFETY", "RECITATION"),
        *("max_output_tokens", "incomplete", "timeout", "FinishReason.LENGTH", "length "),
        *("max_tokens", "content_filter", "tool_calls"),
    ],
)
def test_other_listed_reasons_are_unfinished(value: str) -> None:
    assert (read_finish_reason(value), unknown_finish_reason(value)) == ("length", "")


@pytest.mark.parametrize("value", ["abort", "ERROR", "FinishReason.ABORT"])
def test_a_failed_request_has_no_finish_reason(value: str) -> None:
    assert (read_finish_reason(value), unknown_finish_reason(value)) == (None, "")


@pytest.mark.parametrize(
    ("value", "name"), [("gave up", "gave up"), ("stop!", "stop!"), (2, "2"), (True, "True")]
)
def test_unknown_reasons_are_unfinished_and_named(value: object, name: str) -> None:
    assert (read_finish_reason(value), unknown_finish_reason(value)) == ("length", name)


def test_unknown_reasons_are_described_most_frequent_first() -> None:
    assert describe_unknown_finish_reasons({"a": 1, "b": 1200}) == (
        "unknown finish reasons, which count as truncated: 'b' (1,200), 'a' (1)."
    )
    assert describe_unknown_finish_reasons({}) == ""
