"""Scoring with a policy against a reference: β·log π/π_ref, the reward that is implicit in it.

A policy that was trained on outcomes alone, as the log-ratio of two (Yuan et al. 2024), or by DPO,
holds a reward for each of its steps. It needs a scorer of its own: two models read each solution.
"""

from collections.abc import Iterator
from itertools import accumulate

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.scorers import SteppedText
from fsdpo_data.engines.scorers.convention_tokens import ConventionTokenizer
from fsdpo_data.engines.scorers.conventions import Published
from fsdpo_data.engines.scorers.likelihood import LikelihoodScorer
from fsdpo_data.engines.step_tokens import Encoded


class ImplicitScorer(LikelihoodScorer):
    """Rewards a step with the log-ratio of its tokens, or of all up to its end.

    Raises:
        InputError: if the two models do not have one vocabulary.
    """

    field = "prm"

    def __init__(self, weights: Published, options: ScorerOptions) -> None:
        assert weights.reference is not None, "the resolver finds it"
        super().__init__(weights, options)
        self._reference = LikelihoodScorer(weights.reference, options)
        self._convention = weights.convention
        if self._tokenizer.get_vocab() != self._reference._tokenizer.get_vocab():
            raise InputError(
                "it has another vocabulary than the policy. Give the model that the policy was "
                "trained from.",
                field="reference",
                value=weights.reference.path,
            )
        self._context = min(self._context, self._reference._context)
        # Solutions of the policy's own are encoded as they were when it was trained.
        asks = self._convention.asks
        self._asked = ConventionTokenizer(self._convention, self._tokenizer) if asks else None

    def _encoded(self, item: SteppedText) -> Encoded:
        return self._asked.encode(item, self._context) if self._asked else super()._encoded(item)

    def _rewards(self, encoded: dict[int, Encoded]) -> Iterator[tuple[int, list[float]]]:
        reference, beta = dict(self._reference.step_logprobs(encoded)), self._convention.beta
        for index, own in self.step_logprobs(encoded):
            ratios = [beta * (a - b) for a, b in zip(own, reference[index], strict=True)]
            cumulative = self._convention.link == "log-ratio-so-far"
            yield index, list(accumulate(ratios)) if cumulative else ratios
