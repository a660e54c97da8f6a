"""Tests of segmenters: the steps of any text join to the text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsdpo_data.core.errors import InputError
from fsdpo_data.steps.segment import (
    MIN_PARAGRAPH_BYTES,
    SEGMENTERS,
    remove_step_marker,
    segmenter_name,
    split_at_blank_lines,
    split_at_newlines,
    split_at_paragraphs,
    split_at_step_markers,
    split_auto,
    split_steps,
)

PIECES = [
    "Step 1:",
    "**Step 2:**",
    "### Step 3:",
    "a",
    " ",
    "\n",
    "\n\n",
    "\r\n",
    "$$",
    "\\[",
    "\\]",
    "```",
    "1. ",
    "\\begin{",
    "\\begin{a}",
    "\\end{a}",
    "~~~",
    "\t",
    "\u2028",
    "é",
]


@pytest.mark.parametrize(
    ("segment", "text", "steps"),
    [
        (split_at_step_markers, "Step 1: a\nStep 2: b", ["Step 1: a\n", "Step 2: b"]),
        (
            split_at_step_markers,
            "Let's think.\nStep 1: a\nStep 2: b",
            ["Let's think.\nStep 1: a\n", "Step 2: b"],
        ),
        (
            split_at_step_markers,
            "Step 1: as in Step 2: no\nStep 2: b",
            ["Step 1: as in Step 2: no\n", "Step 2: b"],
        ),
        (
            split_at_step_markers,
            "**Step 1:** a\n\n### Step 2: b\n",
            ["**Step 1:** a\n\n", "### Step 2: b\n"],
        ),
        (split_at_step_markers, "no marker\nat all", ["no marker\nat all"]),
        (split_at_step_markers, "\nStep 1: a", ["\nStep 1: a"]),
        (split_at_newlines, "a\nb\n\nc\n", ["a\n", "b\n\n", "c\n"]),
        (split_at_newlines, "\n\na\n  b", ["\n\na\n", "  b"]),
        (split_at_blank_lines, "a\nb\n \nc\n\n\n  d", ["a\nb\n \n", "c\n\n\n", "  d"]),
        (split_auto, "Step 1: a\n\nb\nStep 2: c", ["Step 1: a\n\nb\n", "Step 2: c"]),
        (split_auto, "a\nb\n\nc", ["a\nb\n\n", "c"]),
        (split_auto, "a\nb\n\n", ["a\n", "b\n\n"]),
        (split_auto, "a\u2028b", ["a\u2028b"]),
        (split_auto, "", []),
        (split_auto, " \n\t", []),
    ],
)
def test_cuts(segment: Any, text: str, steps: list[str]) -> None:
    assert segment(text) == steps


def assert_tiles(text: str) -> dict[str, int]:
    counts = {}
    for name, segmenter in SEGMENTERS.items():
        steps = segmenter.split(text)
        assert "".join(steps) == (text if text.strip() else ""), (name, text)
        assert all(step.strip() for step in steps), (name, text)
        counts[name] = len(steps)
    return counts


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join)))
def test_tiles_any_text(text: str) -> None:
    assert_tiles(text)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)


def read_any(path: Path) -> Any:
    text = path.read_bytes().decode()
    if path.suffix == ".log":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.split("\n") if line.strip()]


def test_tiles_every_published_response(shared: Path) -> None:
    texts, steps = Counter[str](), Counter[str]()
    for folder in ("outputs", "stepwise"):
        for path in sorted((shared / "data" / folder).rglob("*")):
            if path.is_file():
                for text in strings(read_any(path)):
                    texts[folder] += 1
                    steps.update(assert_tiles(text))
    print(f"tiled {dict(texts)} texts into {dict(steps)} steps")
    assert texts["outputs"] > 16_000 and texts["stepwise"] > 22_000


def test_long_text_is_cut_in_linear_time() -> None:
    # Were a pattern quadratic, these would take hours rather than an instant.
    begun = (part * 60_000 for part in ("\\[ x \n\n", "$$", "- a\n\n", "```\n\n", "\\begin{a}\n\n"))
    texts = (" \n" * 500_000 + "x", "Step " * 300_000, "\n" + " " * 1_000_000 + "x")
    for text in (*texts, *begun):
        assert_tiles(text)


LONG, MORE = "This is long enough to be a step.", "So is this, which comes behind it."
FORMULA = "$$\na\n\n+ b\n$$"


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (f"{LONG}\n\n{MORE}", [f"{LONG}\n\n", MORE]),
        # short pieces begin the next step, and the last ends the one before it
        (f"So:\n\n{LONG}\n\n{MORE}\n\nWait.", [f"So:\n\n{LONG}\n\n", f"{MORE}\n\nWait."]),
        ("So:\n\na\n\nb", ["So:\n\na\n\nb"]),
        # formulas, fences, lists
        (f"{LONG}\n{FORMULA}\n\n{MORE}", [f"{LONG}\n{FORMULA}\n\n", MORE]),
        (f"{LONG}\n\\[\na\n\nb\\]\n\n{MORE}", [f"{LONG}\n\\[\na\n\nb\\]\n\n", MORE]),
        (
            f"\\begin{{align}}\n{LONG}\n\n{MORE}\n\\end{{align}}",
            [f"\\begin{{align}}\n{LONG}\n\n{MORE}\n\\end{{align}}"],
        ),
        (
            f"```py\n# {LONG}\n\n# {MORE}\n```\n\n{MORE}",
            [f"```py\n# {LONG}\n\n# {MORE}\n```\n\n", MORE],
        ),
        (f"```\n{LONG}\n\n{MORE}\n````\n\n{MORE}", [f"```\n{LONG}\n\n{MORE}\n````\n\n", MORE]),
        # an indented fence ends at its mark, and a longer mark has others inside
        (
            f"   ```py\n   # {LONG}\n\n   ```\n\n{MORE}\n\n```\n# {LONG}\n\nb\n```\n\n{LONG}",
            [
                f"   ```py\n   # {LONG}\n\n   ```\n\n",
                f"{MORE}\n\n",
                f"```\n# {LONG}\n\nb\n```\n\n",
                LONG,
            ],
        ),
        (
            f"````\n{LONG}\n```\n\n{MORE}\n````\n\n{MORE}",
            [f"````\n{LONG}\n```\n\n{MORE}\n````\n\n", MORE],
        ),
        (f"```x = 1``` {LONG}\n\n{MORE}", [f"```x = 1``` {LONG}\n\n", MORE]),
        # an environment ends with its own name, at its own depth
        (
            f"\\begin{{a}}\\begin{{b}}x\\end{{b}}\n\n{LONG}\\end{{a}}\n\n{MORE}",
            [f"\\begin{{a}}\\begin{{b}}x\\end{{b}}\n\n{LONG}\\end{{a}}\n\n", MORE],
        ),
        (
            f"\\begin{{a}}\\begin{{a}}x\\end{{a}}\n\n{LONG}\\end{{a}}\n\n{MORE}",
            [f"\\begin{{a}}\\begin{{a}}x\\end{{a}}\n\n{LONG}\\end{{a}}\n\n", MORE],
        ),
        (f"{LONG}\n\n- {LONG}\n\n- {MORE}", [f"{LONG}\n\n", f"- {LONG}\n\n- {MORE}"]),
        (
            f"1. {LONG}\n\n   {MORE}\n\n2. {MORE}\n\n{LONG}",
            [f"1. {LONG}\n\n   {MORE}\n\n2. {MORE}\n\n", LONG],
        ),
        (
            "1、先算左边的面积是五。\n\n2、再算右边的面积是六。",
            ["1、先算左边的面积是五。\n\n2、再算右边的面积是六。"],
        ),
        # what is never closed holds nothing together
        (f"{LONG} $$ a\n\n{MORE}", [f"{LONG} $$ a\n\n", MORE]),
        (f"```\n{LONG}\n\n{MORE}", [f"```\n{LONG}\n\n", MORE]),
        (
            f"\\begin{{a}} {LONG}\n\n{MORE}\\end{{b}}",
            [f"\\begin{{a}} {LONG}\n\n", f"{MORE}\\end{{b}}"],
        ),
        # a Chinese sentence is shorter
        ("首先计算左边的和。\n\n然后是右边的积。", ["首先计算左边的和。\n\n", "然后是右边的积。"]),
        ("好的。\n\n然后是右边的积。", ["好的。\n\n然后是右边的积。"]),
    ],
)
def test_paragraphs(text: str, steps: list[str]) -> None:
    assert split_at_paragraphs(text) == steps


def test_the_parts_of_a_solution_that_thinks() -> None:
    thinking, answer = f"<think>\n{LONG}\n\n{MORE}\n</think>\n\n", f"{LONG}\n\n{MORE}"
    text, of_thought = thinking + answer, [f"<think>\n{LONG}\n\n", f"{MORE}\n</think>\n\n"]
    of_answer = [f"{LONG}\n\n", MORE]
    assert split_steps(text, len(thinking), "auto@1") == [thinking, *of_answer]
    assert split_steps(text, len(thinking), "thinking@2") == [*of_thought, answer]
    assert split_steps(text, len(thinking), "both@2") == [*of_thought, *of_answer]
    assert split_steps(thinking, len(thinking), "auto@1") == [
        thinking
    ]  # never closed, or nothing behind
    assert split_steps(thinking + " ", len(thinking), "auto@1") == [thinking + " "]
    assert split_steps(answer, 0, "both@2") == of_answer and split_steps(
        answer, 0, "thinking@2"
    ) == [answer]


@given(st.lists(st.sampled_from([*PIECES, LONG])).map("".join), st.integers(0, 99))
def test_a_solution_that_thinks_is_tiled(text: str, thinking_length: int) -> None:
    for name in SEGMENTERS:
        steps = split_steps(text, thinking_length, name)
        assert "".join(steps) == (text if text.strip() else "")
        assert all(step.strip() for step in steps)


def test_traces_are_cut_nowhere_inside(shared: Path) -> None:
    """No step of these traces, most of them Chinese, splits a formula, code fence or list."""
    counts = []
    for path in sorted((shared / "data/newer/traces").glob("*.jsonl")):
        for text in strings(read_any(path)):
            steps = split_at_paragraphs(text)
            counts.append(len(steps))
            assert "".join(steps) == text
            assert (
                all(len(step.strip().encode()) >= MIN_PARAGRAPH_BYTES for step in steps)
                or len(steps) == 1
            )
            if not text.count("$$") % 2 and not text.count("```") % 2:
                assert not any(step.count("$$") % 2 or step.count("```") % 2 for step in steps)
            if text.count("\\[") == text.count("\\]"):
                assert all(step.count("\\[") == step.count("\\]") for step in steps)
            for step, next_step in pairwise(steps):
                item = step.rstrip().rpartition("\n\n")[2].startswith("- ")
                assert not (item and next_step.startswith("- ")), (step, next_step)
    assert max(counts) > 500


def test_unknown_name_lists_the_known() -> None:
    assert segmenter_name("auto") == "auto@1"
    with pytest.raises(
        InputError, match=r"segmenter = 'lines': expected one of auto@1, step-marker@1"
    ):
        segmenter_name("lines")


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ("Step 1: 2 + 2 = 4.", "2 + 2 = 4."),
        ("Step 12:2 + 2 = 4.\n", "2 + 2 = 4.\n"),
        ("### Step 1: Add\n2 + 2", "Add\n2 + 2"),
        ("**Step 1:** 2 + 2", "2 + 2"),
        ("**Step 1**: 2 + 2", "2 + 2"),
        ("**Step 1: Add** 2 + 2", "**Add** 2 + 2"),
        ("*Step 1: Add* 2 + 2", "*Add* 2 + 2"),
        ("By Step 1: 4.", "By Step 1: 4."),
        ("2 + 2 = 4.\nStep 2: 4", "2 + 2 = 4.\nStep 2: 4"),
        ("Step 1:", ""),
    ],
)
def test_step_markers_are_removed_from_the_start(step: str, text: str) -> None:
    assert remove_step_marker(step) == text
