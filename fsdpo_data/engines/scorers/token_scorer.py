"""What scorers of token ids have in common: each different solution is encoded and read once."""

import math
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

from fsdpo_data.core.errors import UnavailableError
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.engines.scorers.prm_format_tokens import PrmFormatTokenizer
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm
from fsdpo_data.engines.step_tokens import EncodedSolution, StepTokenizer
from fsdpo_data.models.checkpoints import (
    MAX_CPU_BATCH_TOKENS,
    context_length,
    load_checkpoint,
    pick_device,
)
from fsdpo_data.models.resolve import ResolvedWeights


class TokenScorer:
    """A scorer of token ids that reads at most ``context`` of them."""

    field = "prm"  #: What names the model, for messages.

    def __init__(self, weights: ResolvedWeights, tokenizer: Any, context: int) -> None:
        self.model = weights.ref
        self._encoder = StepTokenizer(tokenizer)
        # What a policy holds itself is encoded as it was when the policy was trained.
        self._prompt_tokenizer: PrmFormatTokenizer | None = None
        if isinstance(weights, PublishedPrm) and weights.prm_format.has_own_prompt:
            self._prompt_tokenizer = PrmFormatTokenizer(weights.prm_format, tokenizer)
        self._context = context

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Score every step of every item; see :class:`fsdpo_data.engines.scorers.Scorer`.

        Raises:
            Unavailable: if what the model gives is no number.
        """
        results: list[list[float] | None] = [[] if not item.steps else None for item in items]
        # Samples repeat each other; the same text is run once, and gets the same rewards.
        copies: dict[tuple[str | None, ...], list[int]] = {}
        for index, item in enumerate(items):
            if item.steps:
                copies.setdefault((item.question, item.prompt, *item.steps), []).append(index)
        encoded = {first: self._encode(items[first]) for first, *_ in copies.values()}
        whole = {first: each for first, each in encoded.items() if not each.truncated_steps}
        for index, rewards in self._rewards(whole):
            if not all(map(math.isfinite, rewards)):
                raise UnavailableError(
                    "it rewards steps with what is no number: its weights are damaged, or "
                    "overflow. Try `dtype=float32`.",
                    field=self.field,
                    value=self.model.name,
                )
            results[index] = rewards
        for first, *others in copies.values():
            for index in others:
                results[index] = copy(results[first])
        return results

    def _encode(self, item: ScorerInput) -> EncodedSolution:
        """Return the ids that are read; steps are lost where they are more than the context."""
        if self._prompt_tokenizer:
            return self._prompt_tokenizer.encode(item, self._context)
        return self._encoder.encode(
            item.prompt, item.steps, add_eos=False, max_length=self._context
        )

    def _rewards(self, encoded: dict[int, EncodedSolution]) -> Iterator[tuple[int, list[float]]]:
        """Yield the rewards of each."""
        raise NotImplementedError


class TransformersScorer(TokenScorer):
    """A scorer that runs a model of transformers.

    Raises:
        Unavailable: if torch is missing, a GPU is asked for and absent, or loading fails.
    """

    #: The ``AutoModelFor…``, and what a checkpoint of it is, for messages.
    auto_class: str
    expected: str

    def __init__(self, weights: ResolvedWeights, options: ScorerOptions) -> None:
        self._device = pick_device(options.device)
        asked = options.batch_tokens
        self._batch_tokens = min(asked, MAX_CPU_BATCH_TOKENS) if self._device == "cpu" else asked
        tokenizer, net = load_checkpoint(
            self.auto_class, weights, dtype=options.dtype, expected=self.expected, field=self.field
        )
        super().__init__(weights, tokenizer, context_length(net.config))
        self._tokenizer = tokenizer
        self._net = net.to(self._device).eval().requires_grad_(False)
        self._pad: int = tokenizer.pad_token_id or 0


def length_batches(lengths: dict[int, int], batch_tokens: int) -> Iterator[list[int]]:
    """Cut items, of so many tokens, into batches of like length, longest first.

    Items times the longest of them are within ``batch_tokens``, or the batch is a single item.
    """
    batch: list[int] = []
    for index in sorted(lengths, key=lambda index: -lengths[index]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
