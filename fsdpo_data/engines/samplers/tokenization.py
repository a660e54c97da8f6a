"""Tokens of prompts, tokens and text of completions, stop strings: the same for every engine.

A tokenizer takes what it is given for the beginning of a text, a completion is the rest of one.
Those of the sentencepiece kind put a space before a beginning when they encode it, and take one
off when they decode it; a completion has its own.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import torch
from fsdpo_data.core.row_files import replace_surrogates
from fsdpo_data.models.thinking import THINKING_MARKERS, find_thinking

#: A token before a completion, so that its decoder does not take it for the beginning of a text.
_BEFORE = "a"


def encode_prompt(tokenizer: Any, prompt: str) -> list[int]:
    """Return the ids of a rendered prompt.

    A chat template writes the beginning-of-sequence token itself; the tokenizer must not add a
    second one. An end-of-sequence token that the tokenizer adds would end the prompt before it is
    answered, so it is taken off again.
    """
    has_bos = bool(tokenizer.bos_token) and prompt.startswith(tokenizer.bos_token)
    text = replace_surrogates(prompt)
    ids: list[int] = tokenizer(text, add_special_tokens=not has_bos)["input_ids"]
    if ids and ids[-1] == tokenizer.eos_token_id:
        ids = ids[:-1]
    return ids


def completion_encoder(tokenizer: Any) -> Any:
    """Return a fast tokenizer whose ids of a completion are those that a model generates for it.

    It puts no space in front.

    Raises:
        InputError: if the tokenizer knows no character offsets.
    """
    encoder = text_encoder(tokenizer)
    parts = json.loads(encoder.to_str())
    for part in ("normalizer", "pre_tokenizer"):
        parts[part] = _without_space(parts[part])
    return type(encoder).from_str(json.dumps(parts))


def text_encoder(tokenizer: Any) -> Any:
    """Return a fast tokenizer that only splits text: nothing around it, nothing cut or padded.

    Post-processors trim white space from offsets, which would move a token that begins with the
    separator of two steps into the second.

    Raises:
        InputError: if the tokenizer knows no character offsets, or its parts do not fit together.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise InputError(
            f"{type(tokenizer).__name__} knows no character offsets. Use a tokenizer that has a "
            "tokenizer.json."
        )
    parts = json.loads(backend.to_str())
    parts |= {"post_processor": None, "truncation": None, "padding": None}
    try:
        return type(backend).from_str(json.dumps(parts))
    except Exception as error:  # tokenizers raises no narrower class
        raise InputError(f"tokenizer.json is damaged: {error}. Fetch it again.") from error


def _without_space(part: Any) -> Any:
    """Return a normalizer or pre-tokenizer that puts nothing before its text."""
    match part:
        case {"type": "Prepend"}:
            return None
        case {"type": "Metaspace"}:
            return {**part, "prepend_scheme": "never"}
        case {"type": "Sequence"}:
            listed = "normalizers" if "normalizers" in part else "pretokenizers"
            kept = [inner for each in part[listed] if (inner := _without_space(each))]
            return {**part, listed: kept}
    return part


class CompletionDecoder:
    """Turns generated ids into the text that goes on where the prompt ended.

    Attributes:
        hidden: Special tokens that are left out of it where others mark thinking, and stay in it.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        added = getattr(tokenizer, "added_tokens_decoder", {}).items()
        special = {str(token): at for at, token in added if token.special}
        families = [
            each.tokens for each in THINKING_MARKERS.values() if special.keys() >= {*each.tokens}
        ]
        shown = {special[token] for tokens in families for token in tokens}
        self.hidden = {*special.values()} - shown if shown else set()
        self._before: list[int] = tokenizer(_BEFORE, add_special_tokens=False)["input_ids"]
        self._width = {skip: len(self._decode([], skip)) for skip in (False, True)}

    def __call__(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        """Return the text of generated ``ids``, a leading space included."""
        return self._decode(ids, skip_special)[self._width[skip_special] :]

    def thinking_tokens(self, prompt: str, ids: Sequence[int], text: str) -> int | None:
        """Return how many generated ``ids``, which say ``text``, are thinking; None if none is.

        Those of the answer are counted, from the end: it is short.
        """
        thought = find_thinking(prompt, text)
        if thought.closed is None:
            return None
        answer = len(text) - thought.end
        # No token but the last is empty, and a character is four of them at most.
        first = max(0, len(ids) - 4 * answer - 1)
        behind = range(first, len(ids))
        fits = bisect_left(behind, -answer, key=lambda at: -len(self(ids[at:], skip_special=True)))
        return first + fits if answer else len(ids)

    def _decode(self, ids: Sequence[int], skip_special: bool) -> str:
        if skip_special and self.hidden:
            ids = [each for each in ids if each not in self.hidden]
        text: str = self._tokenizer.decode(
            [*self._before, *ids],
            skip_special_tokens=skip_special and not self.hidden,
            clean_up_tokenization_spaces=False,
        )
        return text


def cut_at_stop(text: str, stop: Sequence[str]) -> tuple[str, str | None]:
    """Cut ``text`` before the earliest stop string; return which it was, None without one.

    Of two that begin at one place, the longer counts.
    """
    found = [(text.find(each), -len(each), each) for each in stop if each in text]
    if not found:
        return text, None
    position, _, which = min(found)
    return text[:position], which


def pad_sequences(
    sequences: Sequence[Sequence[int]], pad: int, device: str, *, left: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and attention mask, both [B, T], of sequences padded with ``pad``.

    Nothing sees what comes behind it, so of long rows that are padded on the right nothing is
    masked: of a padded one transformers would write out [T, T].
    """
    from torch.nn.utils.rnn import pad_sequence

    from fsdpo_data.engines.prefix_sharing import MAX_MASKED_ROW_TOKENS

    rows = [torch.tensor(each, dtype=torch.long) for each in sequences]
    side = "left" if left else "right"
    ids = pad_sequence(rows, True, pad, side)
    unseen = int(ids.shape[1] > MAX_MASKED_ROW_TOKENS and not left)
    mask = pad_sequence([torch.ones_like(row) for row in rows], True, unseen, side)
    return ids.to(device), mask.to(device)
