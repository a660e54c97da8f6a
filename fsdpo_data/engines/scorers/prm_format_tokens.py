"""Solutions to token ids as published reward models are asked: prompt, steps, marks.

Marks are those that are put there, found by the place they were put at: a text that holds one by
itself, as text of models may, neither adds a reward nor takes one.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.samplers.tokenization import encode_prompt, text_encoder
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.engines.scorers.prm_formats import PrmFormat, fill_fields
from fsdpo_data.engines.step_tokens import PROMPT_STEP_ID, EncodedSolution
from fsdpo_data.models.untrusted import limit_execution

#: Stands for a turn while the chat template is rendered around it: templates trim what they get.
_TURN = re.compile("\ue000\\d+\ue001")


class PrmFormatTokenizer:
    """Encodes solutions with one tokenizer, under one convention.

    Raises:
        InputError: if the tokenizer knows no offsets, or the mark is none of its tokens.
    """

    def __init__(self, convention: PrmFormat, tokenizer: Any) -> None:
        self._convention, self._tokenizer = convention, tokenizer
        self._raw = text_encoder(tokenizer)
        bos = tokenizer.bos_token_id
        self._bos = [bos] if bos is not None and encode_prompt(tokenizer, "a")[:1] == [bos] else []
        self._turns = lru_cache(maxsize=256)(self._render_turns)
        mark = convention.step_token.strip()
        if mark and len(self._ids(mark)) != 1:
            raise InputError(
                f"{convention.name} marks steps with {mark!r}, which is no token of this "
                "tokenizer. Use the tokenizer of the checkpoint, or another convention.",
                field="prm_format",
                value=convention.name,
            )

    def encode(self, item: ScorerInput, max_length: int) -> EncodedSolution:
        """Encode a solution up to its last readout; without any readout if it is too long.

        Raises:
            InputError: if its question is not known, or a mark is merged with what is before it.
        """
        convention = self._convention
        question, bos = convention.question_text(item), self._tokenizer.bos_token or ""
        prompt = fill_fields(convention.prompt, question=question, prompt=item.prompt, bos=bos)
        steps = [convention.format_step(k, step) for k, step in enumerate(item.steps, 1)]
        ids, start, score_positions = (
            self._encode_separately if convention.tokenize_separately else self._encode_together
        )(prompt, steps)
        score_positions = [readout + convention.token_offset for readout in score_positions]
        length = score_positions[-1] + 1
        if length > max_length:
            score_positions, length = [], start
        owners = [bisect_left(score_positions, place) for place in range(start, length)]
        step_of = [PROMPT_STEP_ID] * start + [min(each, len(steps) - 1) for each in owners]
        return EncodedSolution(ids[:length], step_of, score_positions, len(steps))

    def _encode_separately(
        self, prompt: str, steps: Sequence[str]
    ) -> tuple[list[int], int, list[int]]:
        """Encode each piece by itself; return ids, the prompt's number of them, and score_positions."""
        ids = [*self._bos] if self._convention.bos else []
        ids += self._ids(prompt)
        start, score_positions, mark = len(ids), [], self._ids(self._convention.step_token)
        # Who has no mark parted the pieces with a special token, and took it out again.
        before = [] if mark or not self._tokenizer.eos_token else [self._tokenizer.eos_token]
        marked = len(mark) if self._convention.read_at == "step_token" else 0
        for step in steps:
            readout = len(ids) - 1
            for line in (
                step.removesuffix("\n").split("\n") if self._convention.mark_each_line else [step]
            ):
                ids += self._ids("".join([*before, line]))[len(before) :]
                if line.strip() or readout < start:
                    readout = len(ids) - 1 + marked
                ids += mark
            score_positions.append(readout)
        return ids, start, score_positions

    def _encode_together(
        self, prompt: str, steps: Sequence[str]
    ) -> tuple[list[int], int, list[int]]:
        """Encode the text as one, and find each place in it by its offset."""
        convention, turns = self._convention, self._turns(len(steps))
        if convention.layout == "turns":
            openings, answers = [turns[0] + prompt, *turns[2:-1:2]], turns[1::2]
        else:
            openings = [turns[0] + prompt + turns[1], *[convention.separator] * (len(steps) - 1)]
            answers = [""] * len(steps)
        text, spans = "", []
        for opening, step, answer in zip(openings, steps, answers, strict=True):
            end = len(text) + len(opening) + len(step)
            text += opening + step + answer + convention.step_token
            spans.append((end, len(text) - len(convention.step_token), len(text)))
        encoding = self._raw.encode(text, add_special_tokens=False)
        starts, ends = ([offset[side] for offset in encoding.offsets] for side in (0, 1))
        opened = bool(self._tokenizer.bos_token) and text.startswith(self._tokenizer.bos_token)
        bos = self._bos if convention.bos and not opened else []
        score_positions = []
        for end, mark, behind in spans:
            at = bisect_left(starts, behind if convention.read_at == "step_token" else end) - 1
            if convention.read_at == "step_token" and starts[at] < mark:
                raise InputError(
                    f"{convention.name}: the tokenizer merges the mark {convention.step_token!r} with "
                    f"{text[starts[at] : mark]!r} before it. Use the tokenizer of the checkpoint.",
                    field="prm_format",
                    value=convention.name,
                )
            score_positions.append(len(bos) + at)
        start = len(bos) + bisect_right(ends, len(openings[0]))
        return [*bos, *encoding.ids], start, score_positions

    def _render_turns(self, n_steps: int) -> list[str]:
        """Return what the chat template writes before each turn and at the end."""
        convention = self._convention
        if convention.layout == "text":
            return ["", "", ""]
        roles = ("user", "assistant") * (n_steps if convention.layout == "turns" else 1)
        chat = [{"role": r, "content": f"\ue000{i}\ue001"} for i, r in enumerate(roles)]
        if convention.system is not None:
            chat.insert(0, {"role": "system", "content": convention.system})
        try:
            with limit_execution("the chat template"):
                # As for policies: a template that prints the date prints this one.
                text = self._tokenizer.apply_chat_template(
                    chat, tokenize=False, date_string="26 Jul 2024"
                )
        except InputError:
            raise
        except Exception as error:  # Jinja and its templates raise whatever they like
            raise InputError(f"the chat template cannot be used: {error}", field="prm") from error
        found: list[str] = _TURN.split(text)
        if len(found) != len(roles) + 1:
            raise InputError("the chat template leaves turns out", field="prm")
        return found

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._raw.encode(text, add_special_tokens=False).ids
        return ids
