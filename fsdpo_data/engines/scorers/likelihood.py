"""Step rewards from a policy: the likelihood of a step, and its log-ratio to a reference.

The likelihood of a step is the baseline that a process reward model has to beat.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from torch import Tensor

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.item_errors import collect_results
from fsdpo_data.engines.logprobs import check_plain_head, token_logprobs
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.samplers.tokenization import pad_sequences
from fsdpo_data.engines.scorers import ScoreResult, ScorerInput
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm
from fsdpo_data.engines.scorers.token_scorer import TransformersScorer, length_batches
from fsdpo_data.engines.step_tokens import EncodedSolution
from fsdpo_data.models.checkpoints import decoder_of
from fsdpo_data.models.resolve import ResolvedWeights


class LikelihoodScorer(TransformersScorer):
    """Scorer that rewards each step with its probability under a policy, given the text before it.

    The product over the steps is the likelihood of the solution without its end-of-sequence token.

    Raises:
        InputError: if the model changes its logits after its head.
    """

    auto_class = "AutoModelForCausalLM"
    expected = "a causal language model"
    field = "likelihood"

    def __init__(self, weights: ResolvedWeights, options: ScorerOptions) -> None:
        super().__init__(weights, options)
        check_plain_head(self._net)

    def _score_encoded(self, encoded: dict[int, EncodedSolution]) -> Iterator[ScoreResult]:
        for index, step_logprobs in self.step_logprobs(encoded):
            yield index, [math.exp(logprob) for logprob in step_logprobs]

    def log_likelihoods(self, items: Sequence[ScorerInput]) -> list[float | None]:
        """Return log π of each solution, without its end-of-sequence token.

        A product of probabilities would underflow for long or unlikely steps.

        Returns:
            The log-likelihoods; None without steps, or for a solution that exceeds the context.

        Raises:
            UnavailableError: if the model returns NaN or infinite log-probabilities.
        """
        logprobs_by_item = collect_results(self._score_unique(items, self.step_logprobs))
        return [math.fsum(logprobs) if logprobs else None for logprobs in logprobs_by_item]

    def step_logprobs(
        self, encoded: dict[int, EncodedSolution]
    ) -> Iterator[tuple[int, list[float]]]:
        """Yield the index of each solution and the log-probability of each of its steps."""
        lengths = {index: len(solution.input_ids) for index, solution in encoded.items()}
        for batch in length_batches(lengths, self._batch_tokens):
            batch_logprobs = self._token_logprobs([encoded[index] for index in batch])
            for index, logprobs in zip(batch, batch_logprobs, strict=True):
                solution = encoded[index]
                boundaries = [
                    solution.completion_start,
                    *(position + 1 for position in solution.score_positions),
                ]
                # logprobs[i] is log π of token i + 1.
                yield (
                    index,
                    [
                        float(logprobs[start - 1 : end - 1].sum())
                        for start, end in pairwise(boundaries)
                    ],
                )

    def _token_logprobs(self, batch: Sequence[EncodedSolution]) -> Tensor:
        """Return log π of every token after the first, shape [B, T - 1]."""
        sequences = [solution.input_ids for solution in batch]
        ids, mask = pad_sequences(sequences, self._pad, self._device)
        decoder = decoder_of(self._net)
        hidden = decoder(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        head = self._net.get_output_embeddings()
        logprobs = token_logprobs(hidden[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), head)
        return logprobs.view(len(batch), -1).double()


class ImplicitScorer(LikelihoodScorer):
    """Scorer with implicit rewards: β·log π/π_ref of a step, or of all steps up to its end.

    A policy has an implicit reward for each step if its training made the log-ratio a reward.
    Examples are DPO, and training on outcomes (Yuan et al. 2024). Policy and reference both read
    each solution.

    Raises:
        InputError: if the two models have different vocabularies.
    """

    field = "prm"

    def __init__(self, weights: PublishedPrm, options: ScorerOptions) -> None:
        assert weights.reference is not None, "the resolver adds the reference"
        super().__init__(weights, options)
        self._reference = LikelihoodScorer(weights.reference, options)
        self._prm_format = weights.prm_format
        if self._tokenizer.get_vocab() != self._reference._tokenizer.get_vocab():
            raise InputError(
                "the vocabulary differs from the vocabulary of the policy. Give the model from "
                "which the policy was trained.",
                field="reference",
                value=weights.reference.path,
            )
        self._context = min(self._context, self._reference._context)

    def _score_encoded(self, encoded: dict[int, EncodedSolution]) -> Iterator[ScoreResult]:
        is_cumulative = self._prm_format.activation == "log-ratio-so-far"
        reference_logprobs = dict(self._reference.step_logprobs(encoded))
        for index, policy_logprobs in self.step_logprobs(encoded):
            log_ratios = [
                self._prm_format.beta * (policy_logprob - reference_logprob)
                for policy_logprob, reference_logprob in zip(
                    policy_logprobs, reference_logprobs[index], strict=True
                )
            ]
            yield index, list(accumulate(log_ratios)) if is_cumulative else log_ratios
