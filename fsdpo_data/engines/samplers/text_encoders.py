"""Fast tokenizers that encode a text exactly: without additions, and special tokens as text.

A problem or a solution may mention a special token, such as ``<|im_end|>``. Its id would end a turn
or begin one. Only the special tokens of a prompt template, and the tokens that a model generated,
are special ids. Tokens that mark thinking are an exception: the text of a solution keeps them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

from fsdpo_data.answers.thinking import THINKING_MARKERS
from fsdpo_data.core.errors import InputError

#: Private characters. One of them is in front of each special token, in an encoder that reads
#: special tokens as text.
_MARKS = range(0xE000, 0xF900)
#: Texts in front of a completion, after which a tokenizer splits. The second one is for completions
#: that start with white space.
_ANCHORS = ("\n", "a")
#: Starts of completions that show whether an encoder treats the start of a text in its own way.
_PROBES = ("a", " a", "\na")


class CompletionTokens(NamedTuple):
    """The token ids of a text."""

    ids: list[int]  #: Token ids.
    starts: list[int]  #: Position of each token in the text, in characters.


class CompletionEncoder:
    """An encoder of completions into the ids that a model generates after a prompt.

    Tokenizers treat the start of a text in their own way. Many add a space. A setting that says so
    is turned off. If the start is still encoded otherwise than after a line end, the encoder puts a
    short text in front of the completion, and removes its tokens.

    Raises:
        InputError: if the tokenizer has no character offsets, or ``tokenizer.json`` is damaged.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._encoders = _MarkingEncoders(text_encoder(tokenizer), is_for_completions=True)
        self._needs_anchor = any(
            (anchored := self._encode_anchored(probe)) and anchored != self._encode_alone(probe)
            for probe in _PROBES
        )

    def encode(self, text: str) -> CompletionTokens:
        """Return the ids of a completion, and where in the text each token starts."""
        anchored = self._encode_anchored(text) if self._needs_anchor and text else None
        return anchored or self._encode_alone(text)

    def _encode_alone(self, text: str) -> CompletionTokens:
        encoder, _ = self._encoders.find(text)
        encoding = encoder.encode(text, add_special_tokens=False)
        return CompletionTokens(encoding.ids, _token_starts(text, encoding.offsets))

    def _encode_anchored(self, text: str) -> CompletionTokens | None:
        """Return the ids of a text after an anchor; None if a token belongs to both."""
        anchor = _ANCHORS[text[0].isspace()]
        encoder, _ = self._encoders.find(text)
        encoding = encoder.encode(anchor + text, add_special_tokens=False)
        size = len(anchor)
        offsets = [(start - size, end - size) for start, end in encoding.offsets if end > size]
        if not offsets or offsets[0][0] < 0:
            return None
        return CompletionTokens(encoding.ids[-len(offsets) :], _token_starts(text, offsets))


def _token_starts(text: str, offsets: Sequence[tuple[int, int]]) -> list[int]:
    """Return the position of each token in a text, in characters.

    Unigram models give the bytes of unknown characters the offsets of the complete run of such
    characters. The first byte of a character then begins it.
    """
    starts: list[int] = []
    for (start, end), tokens in groupby(offsets):
        n_tokens = len(list(tokens))
        if n_tokens == 1 or end - start <= 1:
            starts += [start] * n_tokens
            continue
        byte_counts = [len(character.encode()) for character in text[start:end]]
        if sum(byte_counts) == n_tokens:
            for position, n_bytes in enumerate(byte_counts, start):
                starts += [position] * n_bytes
        else:
            starts += [start] * n_tokens
    return starts


class PromptEncoder:
    """An encoder of prompts in which some special tokens are text.

    Args:
        tokenizer: The tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._encoders = _MarkingEncoders(tokenizer.backend_tokenizer)
        self._pattern = _any_of(self._encoders.names)

    def has_special_tokens(self, text: str) -> bool:
        """Return whether a text contains a special token that would not stay text."""
        return self._pattern is not None and self._pattern.search(text) is not None

    def find_special_tokens(self, text: str) -> list[tuple[int, int]]:
        """Return start and end of each such special token in a text."""
        return [match.span() for match in self._pattern.finditer(text)] if self._pattern else []

    def encode(
        self, text: str, literal_spans: Sequence[tuple[int, int]], *, add_special_tokens: bool
    ) -> list[int]:
        """Return the ids of a text.

        Args:
            text: The text.
            literal_spans: Start and end of the parts in which special tokens are text.
            add_special_tokens: Whether the tokenizer adds its tokens, such as the one that begins
                a sequence.
        """
        encoder, mark = self._encoders.find(text)

        def mark_token(match: re.Match[str]) -> str:
            """Mark a special token, unless a part of it belongs to a literal span."""
            is_literal = any(
                match.start() < end and start < match.end() for start, end in literal_spans
            )
            return match[0] if is_literal else mark + match[0]

        marked = self._pattern.sub(mark_token, text) if self._pattern else text
        ids: list[int] = encoder.encode(marked, add_special_tokens=add_special_tokens).ids
        return ids


def prompt_encoder(tokenizer: Any) -> PromptEncoder | None:
    """Return the encoder of a tokenizer; None if the tokenizer has no fast tokenizer."""
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        return None
    return _prompt_encoder(tokenizer, len(tokenizer))


@lru_cache(maxsize=4)
def _prompt_encoder(tokenizer: Any, vocab_size: int) -> PromptEncoder:
    """Return the encoder of a tokenizer; ``vocab_size`` grows with added tokens."""
    del vocab_size
    return PromptEncoder(tokenizer)


def find_thinking_tokens(special_tokens: Collection[str]) -> set[str]:
    """Return the special tokens that mark thinking, of the families that a tokenizer has."""
    families = (set(markers.tokens) for markers in THINKING_MARKERS.values())
    return {token for tokens in families if tokens <= set(special_tokens) for token in tokens}


def text_encoder(tokenizer: Any) -> Any:
    """Return a fast tokenizer that adds no special tokens, and does not truncate or pad.

    Post-processors trim white space from offsets. A token that begins with the separator of two
    steps would then move into the second step.

    Raises:
        InputError: if the tokenizer has no character offsets, or ``tokenizer.json`` is damaged.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise InputError(
            f"the tokenizer {type(tokenizer).__name__} has no character offsets. Use a tokenizer "
            "with a tokenizer.json."
        )
    encoder = _read_encoder(type(backend), backend.to_str())
    encoder.post_processor = None
    encoder.no_truncation()
    encoder.no_padding()
    return encoder


def _read_encoder(backend_class: Any, settings: str) -> Any:
    """Return a fast tokenizer with the settings of a ``tokenizer.json``."""
    try:
        return backend_class.from_str(settings)
    except Exception as error:  # tokenizers raises no narrower class
        raise InputError(f"tokenizer.json is damaged: {error}. Fetch it again.") from error


def _without_prefix_space(part: Any) -> Any:
    """Return a normalizer or pre-tokenizer that adds nothing in front of its text."""
    match part:
        case {"type": "Prepend"}:
            return None
        case {"type": "Metaspace"}:
            return {**part, "prepend_scheme": "never"}
        case {"type": "Sequence"}:
            key = "normalizers" if "normalizers" in part else "pretokenizers"
            inner_parts = [_without_prefix_space(inner_part) for inner_part in part[key]]
            return {**part, key: [inner_part for inner_part in inner_parts if inner_part]}
    return part


def _any_of(names: Collection[str]) -> re.Pattern[str] | None:
    """Return a pattern of any of the names, the longest first; None without names."""
    ordered = sorted(names, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


class _MarkingEncoders:
    """Encoders in which special tokens are text, unless a mark is in front of them.

    Args:
        backend: The fast tokenizer.
        is_for_completions: Whether nothing is added in front of a text.

    Attributes:
        names: The special tokens.
    """

    def __init__(self, backend: Any, *, is_for_completions: bool = False) -> None:
        added_tokens = backend.get_added_tokens_decoder().values()
        special_tokens = {token.content for token in added_tokens if token.special}
        self.names = special_tokens - find_thinking_tokens(special_tokens)

        @lru_cache(maxsize=2)
        def read(mark: str) -> Any:
            settings = json.loads(backend.to_str()) | {"truncation": None, "padding": None}
            for part in ("normalizer", "pre_tokenizer") if is_for_completions else ():
                settings[part] = _without_prefix_space(settings[part])
            _mark_special_tokens(settings, self.names, mark)
            return _read_encoder(type(backend), json.dumps(settings))

        self._read = read

    def find(self, text: str) -> tuple[Any, str]:
        """Return an encoder whose mark is not in a text, and the mark."""
        mark = next(mark for mark in map(chr, _MARKS) if mark not in text)
        return self._read(mark), mark


def _mark_special_tokens(settings: dict[str, Any], names: Collection[str], mark: str) -> None:
    """Rename special tokens in the settings of a ``tokenizer.json``. Their ids stay."""

    def new_name(name: str) -> str:
        return mark + name if name in names else name

    for token in settings["added_tokens"]:
        token["content"] = new_name(token["content"])
    model = settings["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {new_name(name): i for name, i in model["vocab"].items()}
    else:
        model["vocab"] = [[new_name(name), score] for name, score in model["vocab"]]
    if isinstance(model.get("unk_token"), str):
        model["unk_token"] = new_name(model["unk_token"])
    if "merges" in model:
        model["merges"] = [
            merge for merge in model["merges"] if not _merge_tokens(merge) & {*names}
        ]


def _merge_tokens(merge: Any) -> set[str]:
    """Return the tokens of a merge, which is a list of two texts, or one text with a space."""
    left, right = merge if isinstance(merge, list) else merge.split(" ", 1)
    return {left, right, left + right}
