"""Token ids of solutions in the format of a published reward model: prompt, steps, step tokens.

A step token is the text that many PRM formats insert after each step, and where the reward is read.
The scorer finds step tokens by the position at which it inserted them. A step token that is already
in the text of a solution therefore changes no score position.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.placeholders import fill_text
from fsdpo_data.core.sampling import Prompt
from fsdpo_data.engines.samplers.text_encoders import text_encoder
from fsdpo_data.engines.samplers.tokenization import encode_prompt
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.engines.scorers.prm_formats import PrmFormat
from fsdpo_data.engines.step_tokens import EncodedSolution
from fsdpo_data.models.untrusted import describe_load_error, limit_execution

#: Placeholder of a turn while the chat template is rendered, because templates trim their messages.
_TURN_PLACEHOLDER = re.compile("\ue000\\d+\ue001")

#: Date for chat templates that print one, the same as in :mod:`fsdpo_data.models.prompts`.
_DATE = "26 Jul 2024"


class _EncodedText(NamedTuple):
    """The token ids of a prompt and its steps, before truncation."""

    ids: list[int]  #: Token ids.
    prompt_length: int  #: Number of prompt tokens.
    #: Position of the last token of each step, or of its step token if ``read_at`` selects that.
    score_positions: list[int]


class _StepSpan(NamedTuple):
    """The character positions of a step and its step token in the text."""

    step_end: int  #: End of the step.
    step_token_start: int  #: Start of the step token.
    step_token_end: int  #: End of the step token.


class PrmFormatTokenizer:
    """Encoder of solutions with one tokenizer and one PRM format.

    Raises:
        InputError: if the tokenizer has no character offsets, or lacks the step token.
    """

    def __init__(self, prm_format: PrmFormat, tokenizer: Any) -> None:
        self._prm_format = prm_format
        self._tokenizer = tokenizer
        self._text_encoder = text_encoder(tokenizer)
        bos_id = tokenizer.bos_token_id
        adds_bos = bos_id is not None and encode_prompt(tokenizer, Prompt("a"))[:1] == [bos_id]
        self._bos_ids = [bos_id] if adds_bos else []
        self._get_turn_texts = lru_cache(maxsize=256)(self._render_turn_texts)
        step_token = prm_format.step_token.strip()
        step_token_ids = self._encode_text(step_token)
        is_token = len(step_token_ids) == 1 and step_token_ids != [tokenizer.unk_token_id]
        if step_token and not is_token:
            raise InputError(
                f"the PRM format {prm_format.name} marks steps with {step_token!r}, which is not a "
                "token of this tokenizer. Use the tokenizer of the checkpoint, or another format.",
                field="prm_format",
                value=prm_format.name,
            )

    def encode(self, item: ScorerInput, max_length: int) -> EncodedSolution:
        """Encode a solution up to its last score position.

        If this takes more than ``max_length`` tokens, the result has only the prompt, and no score
        positions.

        Raises:
            InputError: if the format needs the question and the item has none, if the tokenizer
                merges a step token with the text before it, or if a score position is outside of
                the text.
        """
        prm_format = self._prm_format
        values = {
            "question": prm_format.question_text(item),
            "prompt": item.prompt,
            "bos": self._tokenizer.bos_token or "",
        }
        prompt = fill_text(prm_format.prompt, values)
        steps = [
            prm_format.format_step(number, step) for number, step in enumerate(item.steps, start=1)
        ]
        if prm_format.tokenize_separately:
            encoded = self._encode_separately(prompt, steps)
        else:
            encoded = self._encode_together(prompt, steps)
        # The publisher's code may read the reward some tokens before or after the last token.
        score_positions = [
            position + prm_format.token_offset for position in encoded.score_positions
        ]
        length = score_positions[-1] + 1
        if score_positions[0] < 0 or length > len(encoded.ids):
            raise InputError(
                f"the PRM format {prm_format.name} reads a reward outside of the text, "
                f"{prm_format.token_offset} tokens from the end of a step or step token. Change "
                "`token_offset` of the format.",
                field="prm_format",
                value=prm_format.name,
            )
        if length > max_length:
            score_positions = []
            length = encoded.prompt_length
        return EncodedSolution(
            input_ids=np.array(encoded.ids[:length], np.int32),
            # The token before a first step of one token is the last token of the prompt. Solutions
            # share the computation of their prompt, so the shared part must end before it.
            prompt_length=min([encoded.prompt_length, *score_positions]),
            score_positions=score_positions,
            n_steps=len(steps),
        )

    def _encode_separately(self, prompt: str, steps: Sequence[str]) -> _EncodedText:
        """Encode the prompt, each step and each step token separately."""
        prm_format = self._prm_format
        ids = self._bos_ids_before(prompt)
        if self._starts_with_bos(prompt):
            # Sentencepiece tokenizers encode the text after the token otherwise than a text alone.
            ids.append(self._tokenizer.bos_token_id)
            prompt = prompt.removeprefix(self._tokenizer.bos_token)
        ids += self._encode_text(prompt)
        prompt_length = len(ids)
        step_token_ids = self._encode_text(prm_format.step_token)
        # In formats without a step token, the publisher tokenized an EOS token and a step together,
        # then removed the EOS token. This changes how tokenizers encode the start of the step.
        eos_token = self._tokenizer.eos_token
        separators = [eos_token] if eos_token and not step_token_ids else []
        # The score position is the last token of the step, or of the step token behind it.
        offset = len(step_token_ids) if prm_format.read_at == "step_token" else 0
        score_positions = []
        for step in steps:
            # A blank line does not move the score position, except out of the prompt.
            score_position = len(ids) - 1
            lines = step.removesuffix("\n").split("\n") if prm_format.mark_each_line else [step]
            for line in lines:
                ids += self._encode_text("".join([*separators, line]))[len(separators) :]
                if line.strip() or score_position < prompt_length:
                    score_position = len(ids) - 1 + offset
                ids += step_token_ids
            score_positions.append(score_position)
        return _EncodedText(ids, prompt_length, score_positions)

    def _encode_together(self, prompt: str, steps: Sequence[str]) -> _EncodedText:
        """Encode the complete text at once, and find the score positions by character offsets."""
        prm_format = self._prm_format
        turn_texts = self._get_turn_texts(len(steps))
        if prm_format.layout == "turns":
            # Turns of the user have even indices and contain the steps. Turns of the assistant
            # contain the step tokens.
            texts_before = [turn_texts[0] + prompt, *turn_texts[2:-1:2]]
            texts_after = turn_texts[1::2]
        else:
            # The steps follow the prompt, in ``chat`` as the only turn of the assistant.
            separators = [prm_format.separator] * (len(steps) - 1)
            texts_before = [turn_texts[0] + prompt + turn_texts[1], *separators]
            texts_after = [""] * len(steps)
        text = ""
        spans = []
        for before_step, step, after_step in zip(texts_before, steps, texts_after, strict=True):
            text += before_step + step
            step_end = len(text)
            text += after_step
            step_token_start = len(text)
            text += prm_format.step_token
            spans.append(_StepSpan(step_end, step_token_start, len(text)))
        encoding = self._text_encoder.encode(text, add_special_tokens=False)
        token_starts = [start for start, _ in encoding.offsets]
        token_ends = [end for _, end in encoding.offsets]
        bos_ids = self._bos_ids_before(text)
        score_positions = [
            len(bos_ids) + self._find_score_token(text, token_starts, span) for span in spans
        ]
        prompt_length = len(bos_ids) + bisect_right(token_ends, len(texts_before[0]))
        return _EncodedText([*bos_ids, *encoding.ids], prompt_length, score_positions)

    def _find_score_token(self, text: str, token_starts: Sequence[int], span: _StepSpan) -> int:
        """Return the index of the last token that starts inside the part that ``read_at`` selects.

        The part is the step token or the step.
        """
        prm_format = self._prm_format
        if prm_format.read_at != "step_token":
            return bisect_left(token_starts, span.step_end) - 1
        token_index = bisect_left(token_starts, span.step_token_end) - 1
        token_start = token_starts[token_index]
        if token_start < span.step_token_start:
            raise InputError(
                f"the PRM format {prm_format.name} does not fit: the tokenizer merges the step "
                f"token {prm_format.step_token!r} with "
                f"{text[token_start : span.step_token_start]!r} before it. Use the tokenizer of "
                "the checkpoint; a format of your own may need `tokenize_separately = true`.",
                field="prm_format",
                value=prm_format.name,
            )
        return token_index

    def _render_turn_texts(self, n_steps: int) -> list[str]:
        """Return the texts of the chat template before each turn and after the last one."""
        prm_format = self._prm_format
        if prm_format.layout == "text":
            return ["", "", ""]
        n_exchanges = n_steps if prm_format.layout == "turns" else 1
        roles = ("user", "assistant") * n_exchanges
        messages = [
            {"role": role, "content": f"\ue000{index}\ue001"} for index, role in enumerate(roles)
        ]
        if prm_format.system is not None:
            messages.insert(0, {"role": "system", "content": prm_format.system})
        if not self._tokenizer.chat_template:
            raise InputError(
                f"the PRM format {prm_format.name} needs a chat template, but the tokenizer has "
                "none. Choose another format with `prm_format`.",
                field="prm_format",
                value=prm_format.name,
            )
        try:
            with limit_execution("the chat template"):
                text = self._tokenizer.apply_chat_template(
                    messages, tokenize=False, date_string=_DATE
                )
        except InputError:
            raise
        except Exception as error:  # Jinja and its templates raise many kinds of errors
            raise InputError(
                f"the chat template cannot be used: {describe_load_error(error)}. Use the "
                "tokenizer of the checkpoint, or another PRM format.",
                field="prm_format",
                value=prm_format.name,
            ) from error
        turn_texts: list[str] = _TURN_PLACEHOLDER.split(text)
        if len(turn_texts) != len(roles) + 1:
            raise InputError(
                "the chat template does not print every turn. Use the tokenizer of the "
                "checkpoint, or another PRM format.",
                field="prm",
            )
        return turn_texts

    def _bos_ids_before(self, text: str) -> list[int]:
        """Return the beginning-of-sequence token that comes before a text, if there is one."""
        needs_bos = self._prm_format.bos and not self._starts_with_bos(text)
        return [*self._bos_ids] if needs_bos else []

    def _starts_with_bos(self, text: str) -> bool:
        """Return whether a text starts with the beginning-of-sequence token."""
        bos_token = self._tokenizer.bos_token
        return bool(bos_token) and text.startswith(bos_token)

    def _encode_text(self, text: str) -> list[int]:
        ids: list[int] = self._text_encoder.encode(text, add_special_tokens=False).ids
        return ids
