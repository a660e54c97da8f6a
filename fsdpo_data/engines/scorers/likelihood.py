"""Rewards that a policy holds itself: its confidence in its steps, alone or against a reference.

Alone, it is the baseline that a process reward model has to beat.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from torch import Tensor

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.logprobs import check_plain_head, token_logprobs
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.prefix_sharing import decoder_of
from fsdpo_data.engines.samplers.tokenization import pad_sequences
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm
from fsdpo_data.engines.scorers.token_scorer import TransformersScorer, length_batches
from fsdpo_data.engines.step_tokens import EncodedSolution
from fsdpo_data.models.resolve import ResolvedWeights


class LikelihoodScorer(TransformersScorer):
    """Rewards each step with the probability that a policy gives it after what came before.

    The product over the steps is the likelihood of the solution, its end left out.

    Raises:
        InputError: if the model changes its logits after its head.
    """

    auto_class = "AutoModelForCausalLM"
    expected = "a causal language model"
    field = "likelihood"

    def __init__(self, weights: ResolvedWeights, options: ScorerOptions) -> None:
        super().__init__(weights, options)
        check_plain_head(self._net)

    def _rewards(self, encoded: dict[int, EncodedSolution]) -> Iterator[tuple[int, list[float]]]:
        for index, sums in self.step_logprobs(encoded):
            yield index, [math.exp(each) for each in sums]

    def step_logprobs(
        self, encoded: dict[int, EncodedSolution]
    ) -> Iterator[tuple[int, list[float]]]:
        """Yield of each solution the log-probability of every step after what came before."""
        lengths = {index: len(each.input_ids) for index, each in encoded.items()}
        for batch in length_batches(lengths, self._batch_tokens):
            logprobs = self._logprobs([encoded[index] for index in batch])
            for index, row in zip(batch, logprobs, strict=True):
                # row[i] is log π of token i + 1.
                score_positions = encoded[index].score_positions
                starts = [
                    max(1, encoded[index].prompt_length),
                    *(readout + 1 for readout in score_positions),
                ]
                yield index, [float(row[a - 1 : b - 1].sum()) for a, b in pairwise(starts)]

    def _logprobs(self, batch: Sequence[EncodedSolution]) -> Tensor:
        """Return log π of every token after the first, shape [B, T - 1]."""
        ids, mask = pad_sequences([each.input_ids for each in batch], self._pad, self._device)
        hidden = decoder_of(self._net)(
            input_ids=ids, attention_mask=mask, use_cache=False
        ).last_hidden_state
        head = self._net.get_output_embeddings()
        flat = token_logprobs(hidden[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), head)
        return flat.view(len(batch), -1).double()


class ImplicitScorer(LikelihoodScorer):
    """Rewards a step against a reference: β·log π/π_ref of its tokens, or of all up to its end.

    A policy that was trained on outcomes alone, as the log-ratio of two (Yuan et al. 2024), or by
    DPO, holds a reward for each of its steps. Two models read each solution.

    Raises:
        InputError: if the two models do not have one vocabulary.
    """

    field = "prm"

    def __init__(self, weights: PublishedPrm, options: ScorerOptions) -> None:
        assert weights.reference is not None, "the resolver finds it"
        super().__init__(weights, options)
        self._reference = LikelihoodScorer(weights.reference, options)
        self._convention = weights.prm_format
        if self._tokenizer.get_vocab() != self._reference._tokenizer.get_vocab():
            raise InputError(
                "it has another vocabulary than the policy. Give the model that the policy was "
                "trained from.",
                field="reference",
                value=weights.reference.path,
            )
        self._context = min(self._context, self._reference._context)

    def _rewards(self, encoded: dict[int, EncodedSolution]) -> Iterator[tuple[int, list[float]]]:
        reference, beta = dict(self._reference.step_logprobs(encoded)), self._convention.beta
        for index, own in self.step_logprobs(encoded):
            ratios = [beta * (a - b) for a, b in zip(own, reference[index], strict=True)]
            cumulative = self._convention.activation == "log-ratio-so-far"
            yield index, list(accumulate(ratios)) if cumulative else ratios
