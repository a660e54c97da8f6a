"""Tests of thinking spans, with the markers of every model family."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsdpo_data.answers.thinking import THINKING_MARKERS, find_thinking

ALONE = [name for name, marks in THINKING_MARKERS.items() if not marks.requires_both]


@pytest.mark.parametrize("name", THINKING_MARKERS)
def test_marks_of_every_family(name: str) -> None:
    marks = THINKING_MARKERS[name]
    text = f"\n{marks.start}\nHm, 2 + 2.\n{marks.end}\n\nIt is 4."
    thinking = find_thinking("2+2?", text)
    assert (thinking.closed, thinking.markers, text[thinking.end :]) == (True, marks, "It is 4.")
    assert text[thinking.start : thinking.start + 4] == "\nHm,"


@pytest.mark.parametrize("name", ALONE)
def test_thinking_that_the_prompt_opens(name: str) -> None:
    marks = THINKING_MARKERS[name]
    prompt, cut = f"2+2?{marks.start}\n", "Hm, 2 + 2 is"
    text = f"{cut} 4.{marks.end}It is 4."
    for prompt_text in (prompt, "2+2?"):  # the closing mark is enough
        span = find_thinking(prompt_text, text)
        assert (span.closed, text[span.end :], span.start) == (True, "It is 4.", 0)
    assert find_thinking(prompt, cut).closed is False
    assert find_thinking("2+2?", f"{marks.start}{cut}").closed is False
    assert find_thinking(prompt, cut).end == len(cut)
    assert find_thinking("2+2?", cut).closed is None


@pytest.mark.parametrize(
    ("prompt", "text", "closed", "answer"),
    [
        ("", "It is 4.", None, "It is 4."),
        ("", "The tag <think> opens it.", None, "The tag <think> opens it."),
        # Qwen3 with its thinking switched off
        ("<think>\n\n</think>\n\n", "It is 4.", None, "It is 4."),
        ("<think>\n\n", "</think>It is 4.", True, "It is 4."),
        ("", "<think>a</think>b<think>c</think>It is 4.", True, "It is 4."),
        ("", "<think>a</think>b<think>c, and", False, ""),
        ("", "<think>I write </think> and go on</think>It is 4.", True, "It is 4."),
        ("", "<think>a</think>It is 4.\n</think>\n", True, "It is 4.\n</think>\n"),
        ("", "<think>a</think>\n</think> ", True, ""),
        ("", "<think>a</think>  \n", True, ""),
        ("", "analysis of it: 4", None, "analysis of it: 4"),
        ("Give your analysis", "It is 4.", None, "It is 4."),
        (
            "",
            "<|begin_of_thought|>a<|end_of_thought|>\n\n<|begin_of_solution|>\n4<|end_of_solution|>",
            True,
            "4<|end_of_solution|>",
        ),
        (
            "<|start|>assistant",
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>4",
            True,
            "4",
        ),
        ("<|start|>assistant", "<|channel|>analysis<|message|>a, b", False, ""),
        ("<|start|>assistant", "<|channel|>final<|message|>4", True, "4"),
    ],
)
def test_thinking(prompt: str, text: str, closed: bool | None, answer: str) -> None:
    thinking = find_thinking(prompt, text)
    assert (thinking.closed, text[thinking.end :]) == (closed, answer)


def test_thinking_that_a_server_separates() -> None:
    assert find_thinking("", "It is 4.", has_separate_reasoning=True).closed is True
    assert find_thinking("", " ", has_separate_reasoning=True).closed is False
    assert find_thinking("", "<think>a", has_separate_reasoning=True).end == 8


@given(st.lists(st.sampled_from(["<think>", "</think>", "a", " ", "\n", "analysis"])).map("".join))
def test_any_text_is_thinking_and_answer(text: str) -> None:
    thinking = find_thinking("", text)
    assert 0 <= thinking.start <= thinking.end <= len(text)
    assert text[thinking.end :] == text[thinking.end :].lstrip() or not thinking.end
    if thinking.closed:
        assert "</think>" in text[: thinking.end] and "<think>" not in text[thinking.end :]


def test_a_long_text_is_read_in_linear_time() -> None:
    for part in ("</think>", "<think></think>", "<think>", "</think> a\n", "◁think▷\n\n"):
        started = time.process_time()
        find_thinking("", part * 100_000)
        assert time.process_time() - started < 2, part


def test_traces_at_hand(shared: Path) -> None:
    closed = {}
    for name in ("truncated", "long"):
        file = shared / f"data/newer/traces/qwen3_8b_aime25_{name}.jsonl"
        texts = [json.loads(line)["response"] for line in file.read_text().splitlines()]
        spans = [find_thinking("", text) for text in texts]
        closed[name] = sum(span.closed is True for span in spans)
        assert all(span.closed is not None for span in spans)
        answers = [text[span.end :] for text, span in zip(texts, spans, strict=True)]
        assert all(bool(answer) == span.closed for answer, span in zip(answers, spans, strict=True))
    assert closed == {"truncated": 5, "long": 19}
