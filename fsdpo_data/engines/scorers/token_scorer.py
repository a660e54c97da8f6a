"""Base classes of the scorers that read token ids; every distinct solution is scored once."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fsdpo_data.core.errors import UnavailableError
from fsdpo_data.core.sampling import Prompt
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.scorers import ScoreResult, ScorerInput
from fsdpo_data.engines.scorers.prm_format_tokens import PrmFormatTokenizer
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm
from fsdpo_data.engines.step_tokens import EncodedSolution, StepTokenizer
from fsdpo_data.models.checkpoints import (
    MAX_CPU_BATCH_TOKENS,
    check_quantized,
    context_length,
    load_checkpoint,
    pick_device,
)
from fsdpo_data.models.resolve import ResolvedWeights


class TokenScorer:
    """Base class of scorers that read at most ``context`` token ids per solution."""

    field = "prm"  #: The option that names the model, for error messages.

    def __init__(self, weights: ResolvedWeights, tokenizer: Any, context: int) -> None:
        self.model = weights.ref
        # Implicit rewards of a policy use the token ids on which it was trained.
        self._encoder: PrmFormatTokenizer | StepTokenizer
        if isinstance(weights, PublishedPrm) and not weights.prm_format.has_policy_tokens:
            self._encoder = PrmFormatTokenizer(weights.prm_format, tokenizer)
        else:
            self._encoder = StepTokenizer(tokenizer)
        self._context = context

    def score(self, items: Sequence[ScorerInput]) -> Iterator[ScoreResult]:
        """Yield the step rewards of each item; see :class:`fsdpo_data.engines.scorers.Scorer`.

        Raises:
            UnavailableError: if the model returns NaN or infinite rewards.
        """
        return self._score_unique(items, self._score_encoded)

    def _score_unique(
        self,
        items: Sequence[ScorerInput],
        score_encoded: Callable[[dict[int, EncodedSolution]], Iterator[ScoreResult]],
    ) -> Iterator[ScoreResult]:
        """Yield the result of each item, from a function that scores encoded solutions."""
        # Samples often repeat each other. Equal texts are scored once, and get equal rewards.
        duplicates: dict[tuple[str | None, ...], list[int]] = {}
        for index, item in enumerate(items):
            if item.steps:
                key = (item.question, item.prompt, *item.steps)
                duplicates.setdefault(key, []).append(index)
            else:
                yield index, []
        encoded = {}
        indices_by_first = {indices[0]: indices for indices in duplicates.values()}
        for first_index, indices in indices_by_first.items():
            solution = self._encode(items[first_index])
            if solution.truncated_steps:
                yield from ((index, None) for index in indices)
            else:
                encoded[first_index] = solution
        for first_index, rewards in score_encoded(encoded):
            if isinstance(rewards, list) and not all(map(math.isfinite, rewards)):
                raise UnavailableError(
                    "the reward model returned NaN or infinite step rewards, so its weights are "
                    "damaged or overflow. Try `dtype=float32`.",
                    field=self.field,
                    value=self.model.name,
                )
            for index in indices_by_first[first_index]:
                yield index, [*rewards] if isinstance(rewards, list) else rewards

    def _encode(self, item: ScorerInput) -> EncodedSolution:
        """Return the token ids of an item; steps that exceed the context are truncated."""
        if isinstance(self._encoder, PrmFormatTokenizer):
            return self._encoder.encode(item, self._context)
        prompt = Prompt(item.prompt, item.question)
        return self._encoder.encode(prompt, item.steps, add_eos=False, max_length=self._context)

    def _score_encoded(self, encoded: dict[int, EncodedSolution]) -> Iterator[ScoreResult]:
        """Yield the index and the step rewards of each solution, in any order."""
        raise NotImplementedError


class TransformersScorer(TokenScorer):
    """Base class of scorers that run a model through transformers.

    Raises:
        UnavailableError: if torch or the requested GPU is missing, or the model cannot be loaded.
    """

    auto_class: str  #: Name of the ``AutoModelFor…`` class that loads the checkpoint.
    expected: str  #: Description of a suitable checkpoint, for error messages.

    def __init__(self, weights: ResolvedWeights, options: ScorerOptions) -> None:
        self._device = pick_device(options.device)
        self._batch_tokens = options.batch_tokens
        if self._device == "cpu":
            self._batch_tokens = min(options.batch_tokens, MAX_CPU_BATCH_TOKENS)
        tokenizer, net = load_checkpoint(
            self.auto_class,
            weights,
            dtype=options.dtype,
            device=self._device,
            expected=self.expected,
            field=self.field,
        )
        super().__init__(weights, tokenizer, context_length(net.config))
        self._tokenizer = tokenizer
        self._net = net.to(self._device).eval().requires_grad_(requires_grad=False)
        check_quantized(self._net, weights)
        self._pad: int = tokenizer.pad_token_id or 0


def length_batches(lengths: dict[int, int], batch_tokens: int) -> Iterator[list[int]]:
    """Split items into batches of similar length, longest first.

    A padded batch has at most ``batch_tokens`` tokens, unless it is a single item.

    Args:
        lengths: Number of tokens of each item.
        batch_tokens: Maximum number of tokens of a batch, with padding.
    """
    batch: list[int] = []
    for index in sorted(lengths, key=lambda index: -lengths[index]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
