"""Prompt tokens and stop strings, the same for every engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def encode_prompt(tokenizer: Any, prompt: str) -> list[int]:
    """Return the ids of a rendered prompt.

    A chat template writes the beginning-of-sequence token itself; the tokenizer must not add a
    second one.
    """
    has_bos = bool(tokenizer.bos_token) and prompt.startswith(tokenizer.bos_token)
    ids: list[int] = tokenizer(prompt, add_special_tokens=not has_bos)["input_ids"]
    return ids


def cut_at_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Cut ``text`` before the earliest stop string; say whether one was found."""
    found = [position for position in (text.find(each) for each in stop) if position >= 0]
    return (text[: min(found)], True) if found else (text, False)
