"""Prompt tokens and stop strings, the same for every engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def encode_prompt(tokenizer: Any, prompt: str) -> list[int]:
    """Return the ids of a rendered prompt.

    A chat template writes the beginning-of-sequence token itself; the tokenizer must not add a
    second one. An end-of-sequence token that the tokenizer adds would end the prompt before it is
    answered, so it is taken off again.
    """
    has_bos = bool(tokenizer.bos_token) and prompt.startswith(tokenizer.bos_token)
    ids: list[int] = tokenizer(prompt, add_special_tokens=not has_bos)["input_ids"]
    if ids and ids[-1] == tokenizer.eos_token_id:
        ids = ids[:-1]
    return ids


def cut_at_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Cut ``text`` before the earliest stop string; say whether one was found."""
    found = [position for position in (text.find(each) for each in stop) if position >= 0]
    return (text[: min(found)], True) if found else (text, False)
