r"""Prompt and steps to token ids: SFT, PRM training, PRM scoring and DPO all read the same ones.

Those of the prompt are what a sampler gives the model, those of the steps what the model generates
after it. Supervised fine-tuning encodes a response as one step.

Steps are found by character offsets, never by separator tokens: tokenizers merge separators with
what stands before them (".\n\n" is one token of Qwen2), so a separator has no id to look for.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.row_files import replace_surrogates
from fsdpo_data.engines.samplers.tokenization import completion_encoder, encode_prompt

PROMPT_STEP_ID = -1  #: The "step" of a prompt token.


@dataclass(frozen=True, slots=True)
class EncodedSolution:
    """A prompt with its steps as token ids."""

    input_ids: list[
        int
    ]  #: Token ids: prompt, steps, and the end-of-sequence token if it was asked for.
    #: The step each token belongs to, ``PROMPT`` for the prompt's own. A token belongs to the step
    #: it starts in; the end-of-sequence token to the last step.
    step_ids: list[int]
    #: Position in ``ids`` of the last token that starts inside each step kept. The end-of-sequence
    #: token is never one, so a step reads the same whether or not the solution goes on after it.
    score_positions: list[int]
    n_steps: int  #: Steps given; more than ``len(score_positions)`` if truncation cost some.

    @property
    def truncated_steps(self) -> int:
        """Steps cut off, and their labels with them."""
        return self.n_steps - len(self.score_positions)

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt."""
        return self.step_ids.index(0) if self.score_positions else len(self.input_ids)


class StepTokenizer:
    """Encodes solutions with one tokenizer.

    Prompt and solution are tokenised apart, as they are when a model continues a prompt.

    Raises:
        InputError: if the tokenizer knows no offsets.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._eos = tokenizer.eos_token_id
        self._raw = completion_encoder(tokenizer)
        # The samples of a problem come one after the other and share its prompt.
        self._prompt = lru_cache(maxsize=64)(lambda prompt: encode_prompt(tokenizer, prompt))

    def encode(
        self, prompt: str, steps: Sequence[str], *, end: bool, max_length: int | None = None
    ) -> EncodedSolution:
        """Encode a rendered prompt and the steps after it; joined they are the text.

        If the solution ended there (``end``), the end-of-sequence token is added. What does not
        fit into ``max_length`` tokens is cut off in whole steps (the last with its
        end-of-sequence token); with no step left, only the prompt is returned.

        Raises:
            InputError: if a step holds nothing that this tokenizer encodes.
        """
        head = self._prompt(prompt)
        ids, owners = self._text(steps)
        # Tokens come in the order of the steps, so the last token of a step is its readout.
        score_positions = [bisect_right(owners, step) - 1 for step in range(len(steps))]
        lengths = [readout + 1 for readout in score_positions]
        if end and steps:
            ids, owners = [*ids, self._eos], [*owners, len(steps) - 1]
            lengths[-1] += 1
        room = len(ids) if max_length is None else max_length - len(head)
        kept = sum(length <= room for length in lengths)
        length = lengths[kept - 1] if kept else 0
        return EncodedSolution(
            input_ids=[*head, *ids[:length]],
            step_ids=[PROMPT_STEP_ID] * len(head) + owners[:length],
            score_positions=[len(head) + readout for readout in score_positions[:kept]],
            n_steps=len(steps),
        )

    def _text(self, steps: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return the ids of the joined steps, and the step that each token starts in."""
        ids, owners = self._join_steps(steps)
        if len(set(owners)) < len(steps):
            # One token swallowed a whole step ("he" + "llo"). Steps cut at line ends never come
            # to this; imported ones may. Apart from each other, each step has tokens of its own.
            parts = [self._join_steps([step])[0] for step in steps]
            if not all(parts):
                raise InputError(
                    f"step {parts.index([]) + 1} of {len(steps)}, "
                    f"{steps[parts.index([])][:80]!r}, has no token in this tokenizer. Drop the "
                    "solution, or use the tokenizer of the model that wrote it."
                )
            ids = [token for part in parts for token in part]
            owners = [step for step, part in enumerate(parts) for _ in part]
        return ids, owners

    def _join_steps(self, steps: Sequence[str]) -> tuple[list[int], list[int]]:
        encoding = self._raw.encode(replace_surrogates("".join(steps)), add_special_tokens=False)
        ends = list(accumulate(map(len, steps)))
        last = len(steps) - 1  # where a token has no width, it may start at the very end
        owners = [min(bisect_right(ends, start), last) for start, _ in encoding.offsets]
        return encoding.ids, owners


def gather_at_positions(value_BT: Tensor, readout_BK: Tensor) -> Tensor:
    """Return the values at the readout token of every step, shape [B, K].

    ``value_BT`` may be [B, T, 1], as a head of one logit gives them; ``readout_BK`` is 0 where
    there is no step.
    """
    return value_BT.flatten(1).gather(1, readout_BK)
