"""Tokenization of prompts and completions, and stop strings, the same for every engine.

A tokenizer treats its input as the beginning of a text, but a completion continues a text.
Sentencepiece tokenizers add a space at the beginning of a text when they encode, and remove one
when they decode. The functions of this module do neither to a completion.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from fsdpo_data.core.errors import UnavailableError
from fsdpo_data.core.lazy import torch
from fsdpo_data.core.row_files import replace_surrogates
from fsdpo_data.core.sampling import Completion, Prompt
from fsdpo_data.engines.samplers.text_encoders import (
    PromptEncoder,
    find_thinking_tokens,
    prompt_encoder,
)
from fsdpo_data.models.prompts import TEMPLATES, ChatFormat

#: Text before a completion, so that the tokenizer decodes the completion as a continuation.
_PREFIX = "a"
_USER_MESSAGE = "\ue000"  #: A message of the user, while the chat template is rendered.


def encode_prompt(tokenizer: Any, prompt: Prompt) -> list[int]:
    """Return the token ids of the full text of a prompt.

    A chat template writes the beginning-of-sequence token itself, so the tokenizer must not add a
    second one. An end-of-sequence token that the tokenizer adds is removed, because the model
    should continue the prompt. Special tokens in the question are text, also in a question that a
    known template or the chat template of the tokenizer shows.
    """
    has_bos = bool(tokenizer.bos_token) and prompt.full_text.startswith(tokenizer.bos_token)
    ids = _encode_with_literals(tokenizer, prompt, has_bos=has_bos)
    if ids is None:
        text = replace_surrogates(prompt.full_text)
        ids = tokenizer(text, add_special_tokens=not has_bos)["input_ids"]
    if ids and ids[-1] == tokenizer.eos_token_id:
        ids = ids[:-1]
    return ids


def _encode_with_literals(tokenizer: Any, prompt: Prompt, *, has_bos: bool) -> list[int] | None:
    """Return the ids of a prompt whose question mentions special tokens; None for other prompts."""
    encoder = prompt_encoder(tokenizer)
    text = prompt.full_text
    if encoder is None or not encoder.has_special_tokens(text):
        return None
    spans = _with_question(tokenizer, encoder, prompt).literal_spans
    if not any(encoder.has_special_tokens(text[start:end]) for start, end in spans):
        return None
    template_has_bos = has_bos and all(start > 0 for start, _ in spans)
    text = replace_surrogates(text)
    return encoder.encode(text, spans, add_special_tokens=not template_has_bos)


def _with_question(tokenizer: Any, encoder: PromptEncoder, prompt: Prompt) -> Prompt:
    """Return a prompt that knows its question, if a template shows it.

    Plain files have prompts without their questions, and an imported prompt of no known template is
    the question of its problem.
    """
    if prompt.question is not None and prompt.question != prompt.text:
        return prompt
    question = _find_user_message(tokenizer, encoder, prompt.text)
    if question is None:
        templates = [item for item in TEMPLATES.loaded_entries() if not item.needs_chat]
        questions = (template.find_question(prompt.text) for template in templates)
        question = min(filter(None, questions), key=len, default=prompt.question)
    return replace(prompt, question=question)


def _find_user_message(tokenizer: Any, encoder: PromptEncoder, prompt: str) -> str | None:
    """Return the last message of the user in a prompt with the chat format of the tokenizer."""
    chat_template = getattr(tokenizer, "chat_template", None)
    if not chat_template:
        return None
    start_text, end_text = _text_around_user_message(tokenizer, encoder, str(chat_template))
    end = prompt.rfind(end_text) if end_text else -1
    start = prompt.rfind(start_text, 0, end) if start_text and end >= 0 else -1
    return prompt[start + len(start_text) : end] if start >= 0 else None


@lru_cache(maxsize=4)
def _text_around_user_message(
    tokenizer: Any, encoder: PromptEncoder, chat_template: str
) -> tuple[str, str]:
    """Return the texts from the last special token before a message to the first one after it.

    They are empty if a template cannot be used, or writes no special token there. Other system
    messages and other starts of an answer have the same texts.
    """
    del chat_template  # a key of the cache
    try:
        text = ChatFormat(tokenizer).render(_USER_MESSAGE)
    except Exception:  # Jinja and chat templates may raise any exception
        return "", ""
    text_before, _, text_after = text.partition(_USER_MESSAGE)
    spans_before = encoder.find_special_tokens(text_before)
    spans_after = encoder.find_special_tokens(text_after)
    if not spans_before or not spans_after:
        return "", ""
    return text_before[spans_before[-1][0] :], text_after[: spans_after[0][1]]


def read_eos_ids(net: Any, tokenizer: Any) -> list[int]:
    """Return every id that ends a sequence of a model.

    These are the ids in its generation config, and the end-of-sequence token of its tokenizer.

    Raises:
        UnavailableError: if ``eos_token_id`` of the generation config is not a list of ids.
    """
    eos_token_id = net.generation_config.eos_token_id
    ids: list[int] = [*eos_token_id] if isinstance(eos_token_id, list) else [eos_token_id]
    if eos_token_id is None:
        ids = []
    if not all(isinstance(token, int) and 0 <= token < 2**31 for token in ids):
        raise UnavailableError(
            f"eos_token_id in generation_config.json is {eos_token_id!r}. Expected token ids; "
            "correct the file.",
            field="model",
            value=str(net.name_or_path),
        )
    if tokenizer.eos_token_id is not None and tokenizer.eos_token_id not in ids:
        ids.append(tokenizer.eos_token_id)
    return ids


class ContextTokens(NamedTuple):
    """The token ids that a model continues."""

    ids: list[int]  #: Ids of the prompt and of the start of the solution.
    solution_ids: list[int]  #: The last of ``ids``, which the model generated earlier.
    #: The text that the caller has of ``solution_ids``; the decoded ids may be longer.
    solution_text: str
    returns_ids: bool = False  #: Whether the caller needs the ids of the solution.

    def total_ids(self, new_ids: Sequence[int]) -> tuple[int, ...] | None:
        """Return the ids of the solution with new ids; None if the caller does not need them."""
        return (*self.solution_ids, *new_ids) if self.returns_ids else None


def encode_context(tokenizer: Any, decoder: CompletionDecoder, prompt: Prompt) -> ContextTokens:
    """Return the token ids of a prompt, with the ids that the model generated earlier."""
    if prompt.token_ids is not None:
        solution_ids = decoder.find_covering_ids(prompt.token_ids, prompt.solution_text)
        if solution_ids is not None:
            prompt_ids = encode_prompt(tokenizer, Prompt(prompt.text, prompt.question))
            ids = [*prompt_ids, *solution_ids]
            return ContextTokens(ids, solution_ids, prompt.solution_text, returns_ids=True)
    return ContextTokens(encode_prompt(tokenizer, prompt), [], "")


class CompletionDecoder:
    """A decoder from generated ids to the text that continues the prompt.

    Attributes:
        hidden_ids: Ids of special tokens that the text leaves out, if the tokenizer has special
            tokens that mark thinking; those stay in the text. Empty if there are no such tokens:
            then the text leaves out all special tokens.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        added_tokens = getattr(tokenizer, "added_tokens_decoder", {})
        special_ids = {
            str(token): token_id for token_id, token in added_tokens.items() if token.special
        }
        thinking_tokens = find_thinking_tokens(special_ids)
        self._hidden_tokens = {
            token: token_id
            for token, token_id in special_ids.items()
            if token not in thinking_tokens
        }
        self.hidden_ids = set(self._hidden_tokens.values()) if thinking_tokens else set()
        self._prefix_ids: list[int] = tokenizer(_PREFIX, add_special_tokens=False)["input_ids"]
        self._prefix_chars = {
            skip_special: len(self._decode([], skip_special=skip_special))
            for skip_special in (False, True)
        }

    def __call__(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        """Return the text of generated ``ids``, including a leading space."""
        text = self._decode(ids, skip_special=skip_special)
        return text[self._prefix_chars[skip_special] :]

    def find_stop_ids(self, stop: Sequence[str]) -> list[int]:
        """Return the ids of the stop strings that are tokens which the text leaves out.

        A search in the text would not find them, such as ``<|im_end|>`` of a base model. They end a
        sequence like its end-of-sequence token.
        """
        return [self._hidden_tokens[string] for string in stop if string in self._hidden_tokens]

    def decode_continuation(
        self, context: ContextTokens, new_ids: Sequence[int], *, skip_special: bool = False
    ) -> str:
        r"""Return the text after ``context.solution_text``.

        It starts with the part of the last earlier token that reaches beyond that text. If the
        caller has the text ``x =`` of the tokens ``x`` and `` =\n``, the new token ``4`` gives
        ``\n4``.

        Args:
            context: The earlier tokens, and the text that the caller has of them.
            new_ids: Ids that the model generated after them.
            skip_special: Whether to leave out special tokens, as the text of the caller does.
        """
        if not context.solution_ids:
            return self(new_ids, skip_special=skip_special)
        visible_text = self(context.solution_ids, skip_special=True)
        unknown_chars = len(visible_text) - len(context.solution_text)
        earlier_text = self(context.solution_ids, skip_special=skip_special)
        text = self([*context.solution_ids, *new_ids], skip_special=skip_special)
        return text[len(earlier_text) - unknown_chars :]

    def find_covering_ids(self, ids: Sequence[int], text: str) -> list[int] | None:
        """Return the first of ``ids`` whose text starts with ``text``; None if no ids do.

        The last token may reach beyond the text. Incomplete characters at the end are kept.
        """
        decoded = self(ids, skip_special=True)
        if not decoded.startswith(text):
            return None
        if not decoded[len(text) :].strip("\N{REPLACEMENT CHARACTER}"):
            return list(ids)
        count = bisect_left(
            range(len(ids)),
            len(text),
            key=lambda count: len(self(ids[:count], skip_special=True)),
        )
        while not self(ids[:count], skip_special=True).startswith(text):
            count += 1
        return list(ids[:count])

    def _decode(self, ids: Sequence[int], *, skip_special: bool) -> str:
        """Return the text of the prefix and the ids."""
        if skip_special and self.hidden_ids:
            ids = [token_id for token_id in ids if token_id not in self.hidden_ids]
        text: str = self._tokenizer.decode(
            [*self._prefix_ids, *ids],
            skip_special_tokens=skip_special and not self.hidden_ids,
            clean_up_tokenization_spaces=False,
        )
        return text


def cut_at_stop(text: str, stop: Sequence[str]) -> tuple[str, str | None]:
    """Cut ``text`` before the earliest stop string.

    If two stop strings begin at the same position, the longer one counts.

    Returns:
        The text before the stop string, and the stop string; None if there is no stop string.
    """
    matches = [(text.find(string), -len(string), string) for string in stop if string in text]
    if not matches:
        return text, None
    position, _, stop_string = min(matches)
    return text[:position], stop_string


def stop_within_context(
    decoder: CompletionDecoder, context: ContextTokens, stop: Sequence[str]
) -> Completion | None:
    """Return a completion without new tokens, if the earlier tokens contain a stop string.

    The last earlier token may reach beyond the text of the caller, and that part is checked.
    """
    if not context.solution_ids or not stop:
        return None
    text, stop_string = cut_at_stop(
        decoder.decode_continuation(context, [], skip_special=True), stop
    )
    if stop_string is None:
        return None
    token_ids = context.total_ids([])
    return Completion(text, "stop", n_tokens=0, stop_string=stop_string, token_ids=token_ids)


def pad_sequences(
    sequences: Sequence[Any], pad_id: int, device: str, *, pad_left: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask, both [B, T], of lists or arrays of ids padded with ``pad_id``.

    For long rows that are padded on the right, the mask is all ones. No token attends to the
    padding behind it, and for a mask with zeros transformers would allocate [T, T].
    """
    from torch.nn.utils.rnn import pad_sequence

    from fsdpo_data.engines.prefix_sharing.masks import MAX_MASKED_ROW_TOKENS

    rows = [torch.tensor(sequence, dtype=torch.long) for sequence in sequences]
    side = "left" if pad_left else "right"
    ids = pad_sequence(rows, batch_first=True, padding_value=pad_id, padding_side=side)
    is_long = ids.shape[1] > MAX_MASKED_ROW_TOKENS and not pad_left
    mask = pad_sequence(
        [torch.ones_like(row) for row in rows],
        batch_first=True,
        padding_value=int(is_long),
        padding_side=side,
    )
    return ids.to(device), mask.to(device)
