r"""Token ids of prompts and steps, the same for SFT, PRM training, PRM scoring and DPO.

Prompt ids are the ids that a sampler sends to the model; step ids are the ids that the model
generates after them. Supervised fine-tuning encodes a response as one step.

Character offsets assign tokens to steps. A search for separator tokens would not work, because
tokenizers merge a separator with the text before it. For example, ".\n\n" is one token of Qwen2.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.row_files import replace_surrogates
from fsdpo_data.core.sampling import Prompt
from fsdpo_data.engines.samplers.text_encoders import CompletionEncoder
from fsdpo_data.engines.samplers.tokenization import CompletionDecoder, encode_prompt
from fsdpo_data.models.untrusted import limit_execution

PROMPT_STEP_ID = -1  #: The step id of prompt tokens.
_MAX_QUOTED_CHARS = 80  #: Characters of a step in an error message.
_TURN_PLACEHOLDER = "\ue001"  #: A turn of the assistant, while the chat template is rendered.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncodedSolution:
    """A prompt and the steps of a solution as token ids, for training and for scoring."""

    #: Token ids of the prompt and the steps, and the end-of-sequence token if requested (int32).
    input_ids: np.ndarray
    prompt_length: int  #: Number of prompt tokens.
    #: The score position of each step, where its reward is read: the position in ``input_ids`` of
    #: the last token that starts inside the step. The end-of-sequence token is never a score
    #: position, so a step scores the same with and without further steps.
    score_positions: list[int]
    n_steps: int  #: Steps of the solution before truncation.

    @property
    def truncated_steps(self) -> int:
        """Number of steps that truncation removed."""
        return self.n_steps - len(self.score_positions)

    @property
    def completion_start(self) -> int:
        """Position of the first token that a model predicts after the prompt.

        Without a prompt this is 1, because no token predicts the first one.
        """
        return max(1, self.prompt_length)

    @property
    def completion_length(self) -> int:
        """Number of tokens from ``completion_start`` on."""
        return len(self.input_ids) - self.completion_start

    @property
    def step_ids(self) -> np.ndarray:
        """The step of each token.

        ``PROMPT_STEP_ID`` for tokens before ``completion_start``, else the first step with a score
        position at the token or after it. The end-of-sequence token belongs to the last step.
        """
        step_ids = np.searchsorted(self.score_positions, np.arange(len(self.input_ids)))
        step_ids = np.minimum(step_ids, len(self.score_positions) - 1)
        step_ids[: self.completion_start] = PROMPT_STEP_ID
        return step_ids


class _StepTokens(NamedTuple):
    """Token ids of the steps of a solution, without the prompt."""

    token_ids: list[int]  #: Token ids.
    step_ids: list[int]  #: Index of the step in which each token starts, in ascending order.


class StepTokenizer:
    """An encoder of prompts and steps for one tokenizer.

    Prompt and steps are tokenized separately, as when a model continues a prompt.

    Many chat models end their turn with another token than the end-of-sequence token of their
    tokenizer, such as ``<end_of_turn>`` of Gemma. It is one of the ids that end a sequence of the
    model, and a chat prompt contains it, because it ends the turns before. Of several such ids in a
    prompt, the one counts with which the chat template of the tokenizer ends a turn of the
    assistant. Without one in the prompt, the first id counts: Phi-3 also ends sequences at
    ``<|assistant|>``, which begins its turns.

    Special tokens in a step are text, and so are those in the question. Tokens that mark thinking
    keep their ids, and so does an end of the sequence that the last step ends with.

    Args:
        tokenizer: The tokenizer.
        eos_ids: All ids that end a sequence of the model; see :func:`.tokenization.read_eos_ids`.
            They are needed to add an end-of-sequence token.

    Raises:
        InputError: if the tokenizer has no character offsets.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, eos_ids: Collection[int] = ()) -> None:
        self._encoder = CompletionEncoder(tokenizer)
        self._eos_id = tokenizer.eos_token_id
        # A config of another tokenizer may name an ordinary token.
        added_ids = {*eos_ids} & {*tokenizer.added_tokens_decoder}
        self._end_ids = {self._eos_id, *added_ids}
        # A token may both begin and end sequences. In a prompt, it begins the first turn.
        self._turn_end_ids = self._end_ids - {tokenizer.bos_token_id}
        self._template_end_id = _find_template_end(tokenizer, self._turn_end_ids)
        added_tokens = tokenizer.added_tokens_decoder
        self._end_texts = {
            str(added_tokens[end_id]): end_id for end_id in self._end_ids if end_id in added_tokens
        }

        # The solutions of a problem follow each other and share their prompt.
        @lru_cache(maxsize=64)
        def encode_cached(prompt: Prompt) -> list[int]:
            return encode_prompt(tokenizer, prompt)

        self._encode_prompt = encode_cached

    def encode(
        self, prompt: Prompt, steps: Sequence[str], *, add_eos: bool, max_length: int | None = None
    ) -> EncodedSolution:
        """Encode a prompt and the steps of a solution.

        The text of the solution is the concatenation of its steps.

        Args:
            prompt: The prompt, without a start of the solution.
            steps: The steps of the solution.
            add_eos: Whether to add the end-of-sequence token, because the solution ended here. In
                a chat prompt, this is the token that ends the turns of the prompt.
            max_length: Maximum number of tokens. Steps that do not fit are removed completely,
                the last step with its end-of-sequence token. If no step fits, the result has only
                the prompt, even if the prompt is longer.

        Raises:
            InputError: if a step has no token in this tokenizer.
        """
        prompt_ids = self._encode_prompt(prompt)
        end_id = None
        if add_eos and steps:
            steps, end_id = self._cut_end(steps)
            if end_id is None:
                end_id = self._choose_end(prompt_ids)
        token_ids, step_ids = self._encode_steps(steps)
        # The step ids ascend, so the last token of a step is before the first of the next step.
        score_positions = [bisect_right(step_ids, step) - 1 for step in range(len(steps))]
        lengths = [position + 1 for position in score_positions]
        if end_id is not None:
            token_ids = [*token_ids, end_id]
            lengths[-1] += 1
        max_step_tokens = len(token_ids) if max_length is None else max_length - len(prompt_ids)
        n_steps_kept = sum(length <= max_step_tokens for length in lengths)
        n_tokens = lengths[n_steps_kept - 1] if n_steps_kept else 0
        return EncodedSolution(
            input_ids=np.array([*prompt_ids, *token_ids[:n_tokens]], np.int32),
            prompt_length=len(prompt_ids),
            score_positions=[
                len(prompt_ids) + position for position in score_positions[:n_steps_kept]
            ],
            n_steps=len(steps),
        )

    def _cut_end(self, steps: Sequence[str]) -> tuple[Sequence[str], int | None]:
        """Return the steps without the token that ends the text, and its id; None without one.

        White space after the token is left out: chat templates write a line end after a turn.
        """
        text = steps[-1].rstrip()
        for end_text, end_id in self._end_texts.items():
            last_step = text.removesuffix(end_text)
            if last_step and last_step != text:
                return [*steps[:-1], last_step], end_id
        return steps, None

    def _choose_end(self, prompt_ids: Sequence[int]) -> int:
        """Return the id that ends a solution of a prompt."""
        turn_ends = [token for token in prompt_ids if token in self._turn_end_ids]
        if self._template_end_id in turn_ends:
            return self._template_end_id
        return turn_ends[0] if turn_ends else self._eos_id

    def _encode_steps(self, steps: Sequence[str]) -> _StepTokens:
        """Encode the joined steps, or each step by itself if a token would cover a full step."""
        tokens = self._encode_joined(steps)
        if len(set(tokens.step_ids)) >= len(steps):
            return tokens
        # A token covers a full step ("he" + "llo"). This happens with imported steps only, because
        # our segmenters split at line ends.
        ids_by_step = [self._encode_joined([step]).token_ids for step in steps]
        if not all(ids_by_step):
            index = ids_by_step.index([])
            raise InputError(
                f"step {index + 1} of {len(steps)}, {steps[index][:_MAX_QUOTED_CHARS]!r}, has no "
                "token in this tokenizer. Drop the solution, or use the tokenizer of the model "
                "that wrote it."
            )
        return _StepTokens(
            token_ids=[token for step_tokens in ids_by_step for token in step_tokens],
            step_ids=[step for step, step_tokens in enumerate(ids_by_step) for _ in step_tokens],
        )

    def _encode_joined(self, steps: Sequence[str]) -> _StepTokens:
        """Encode the joined steps, and assign each token to the step in which it starts."""
        text = replace_surrogates("".join(steps))
        encoded = self._encoder.encode(text)
        step_ends = list(accumulate(map(len, steps)))
        last_step = len(steps) - 1  # a token of zero width may start at the end of the text
        step_ids = [
            min(bisect_right(step_ends, token_start), last_step) for token_start in encoded.starts
        ]
        return _StepTokens(encoded.ids, step_ids)


def _find_template_end(tokenizer: Any, end_ids: Collection[int]) -> int | None:
    """Return the end id that the chat template writes after a turn of the assistant, if any."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    messages = [
        {"role": "user", "content": "\ue000"},
        {"role": "assistant", "content": _TURN_PLACEHOLDER},
    ]
    try:
        with limit_execution("the chat template"):
            text = tokenizer.apply_chat_template(messages, tokenize=False)
    except Exception:  # a template may raise any exception; the prompts are rendered already
        return None
    text_after = text.rpartition(_TURN_PLACEHOLDER)[2]
    ids: list[int] = tokenizer(text_after, add_special_tokens=False)["input_ids"]
    return next((token for token in ids if token in end_ids), None)


def find_step_ids(
    decoder: CompletionDecoder, token_ids: Sequence[int], steps: Sequence[str]
) -> list[int]:
    """Return the index of the step in which each generated token starts.

    The tokens are the ones that the model generated. They are never encoded again, because the
    text may have other tokens than the model chose. As in :class:`EncodedSolution`, tokens after
    the text belong to the last step, such as the end-of-sequence token. A step without a token of
    its own has no index.

    Args:
        decoder: The decoder that gave the text of the steps.
        token_ids: Generated token ids.
        steps: The steps of ``decoder(token_ids, skip_special=True)``.

    Raises:
        InputError: if the steps do not join to the text of the tokens, or there are no steps.
    """
    text = decoder(token_ids, skip_special=True)
    if not steps or "".join(steps) != text:
        raise InputError(
            f"the steps must join to the text of the token ids, {text[:_MAX_QUOTED_CHARS]!r}. "
            "Split the text that the same decoder returns.",
            field="steps",
            value=[step[:_MAX_QUOTED_CHARS] for step in steps[:4]],
        )

    def token_start(position: int) -> int:
        """Return the offset in the text at which the token at a position starts."""
        last_start = 0
        while True:
            text_before = decoder(token_ids[:position], skip_special=True)
            start = _common_prefix_length(text, text_before)
            last_start = max(last_start, start)
            # A byte of an incomplete character can hide complete characters before it, if they are
            # bytes, too: a decoder reads a run of byte tokens as a whole. Fewer tokens may show
            # more characters then. They may also show fewer: the first byte of a character may
            # share a token with a space.
            if text_before[start : start + 1] != "\N{REPLACEMENT CHARACTER}":
                return last_start
            position -= 1

    # A binary search per step decodes a few prefixes, instead of one for every token.
    step_starts = [0, *accumulate(map(len, steps[:-1]))]
    positions = range(len(token_ids))
    first_tokens = [bisect_left(positions, start, key=token_start) for start in step_starts]
    first_tokens[0] = 0
    return [bisect_right(first_tokens, position) - 1 for position in positions]


def _common_prefix_length(text: str, other: str) -> int:
    """Return the number of characters at the start that two texts share."""
    if text.startswith(other):
        return len(other)
    # The bytes of an incomplete character at the end decode to replacement characters.
    other = other.rstrip("\N{REPLACEMENT CHARACTER}")
    if text.startswith(other):
        return len(other)
    pairs = zip(text, other, strict=False)
    return next((i for i, (left, right) in enumerate(pairs) if left != right), len(text))


def gather_at_positions(value_BT: Tensor, position_BK: Tensor) -> Tensor:
    """Return the values at the score position of every step, shape [B, K].

    Args:
        value_BT: One value per token, [B, T] or [B, T, 1] (a head with one logit).
        position_BK: Score positions of the steps; 0 for padding.
    """
    return value_BT.flatten(1).gather(1, position_BK)
