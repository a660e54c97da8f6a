"""Segmentation tiles the text, whatever the text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsdpo_data.core.errors import InputError
from fsdpo_data.steps.segment import (
    SEGMENTERS,
    auto,
    blank_line,
    get_segmenter,
    newline,
    step_marker,
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
    "\t",
    "\u2028",
    "é",
]


@pytest.mark.parametrize(
    ("segment", "text", "steps"),
    [
        (step_marker, "Step 1: a\nStep 2: b", ["Step 1: a\n", "Step 2: b"]),
        (
            step_marker,
            "Let's think.\nStep 1: a\nStep 2: b",
            ["Let's think.\nStep 1: a\n", "Step 2: b"],
        ),
        (
            step_marker,
            "Step 1: as in Step 2: no\nStep 2: b",
            ["Step 1: as in Step 2: no\n", "Step 2: b"],
        ),
        (step_marker, "**Step 1:** a\n\n### Step 2: b\n", ["**Step 1:** a\n\n", "### Step 2: b\n"]),
        (step_marker, "no marker\nat all", ["no marker\nat all"]),
        (step_marker, "\nStep 1: a", ["\nStep 1: a"]),
        (newline, "a\nb\n\nc\n", ["a\n", "b\n\n", "c\n"]),
        (newline, "\n\na\n  b", ["\n\na\n", "  b"]),
        (blank_line, "a\nb\n \nc\n\n\n  d", ["a\nb\n \n", "c\n\n\n", "  d"]),
        (auto, "Step 1: a\n\nb\nStep 2: c", ["Step 1: a\n\nb\n", "Step 2: c"]),
        (auto, "a\nb\n\nc", ["a\nb\n\n", "c"]),
        (auto, "a\nb\n\n", ["a\n", "b\n\n"]),
        (auto, "a\u2028b", ["a\u2028b"]),
        (auto, "", []),
        (auto, " \n\t", []),
    ],
)
def test_cuts(segment: Any, text: str, steps: list[str]) -> None:
    assert segment(text) == steps


def assert_tiles(text: str) -> dict[str, int]:
    counts = {}
    for name, segment in SEGMENTERS.items():
        steps = segment(text)
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
    for text in (" \n" * 500_000 + "x", "Step " * 300_000, "\n" + " " * 1_000_000 + "x"):
        assert_tiles(text)


def test_unknown_name_lists_the_known() -> None:
    assert get_segmenter("auto") == ("auto@1", auto)
    with pytest.raises(
        InputError, match=r"segmenter = 'lines': expected one of auto@1, step-marker@1"
    ):
        get_segmenter("lines")
