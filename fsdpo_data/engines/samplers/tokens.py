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


def cut_at_stop(text: str, stop: Sequence[str]) -> tuple[str, str | None]:
    """Cut ``text`` before the earliest stop string; return which it was, None without one.

    Of two that begin at one place, the longer counts.
    """
    found = [(text.find(each), -len(each), each) for each in stop if each in text]
    if not found:
        return text, None
    position, _, which = min(found)
    return text[:position], which
