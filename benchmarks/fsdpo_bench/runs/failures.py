"""Problems with a refused prompt or solution, while the rest of a batch goes on.

The decoders of a batch get a special sampler and scorer. This sampler answers a refused prompt with
empty completions. This scorer answers a refused solution with no rewards. The batch is decoded to
its end, and the problems of the refused items are then left out.
"""

from collections.abc import Iterator, Sequence

from fsdpo_data.core.errors import ItemError
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.engines.samplers import (
    PromptFailure,
    PromptResult,
    Sampler,
    StreamingSampler,
    refuse_full_context,
    stream_outcomes,
)
from fsdpo_data.engines.scorers import Scorer, ScorerInput, score_outcomes


class BatchFailures:
    """The failed problems of a batch.

    Attributes:
        prompts: The rendered prompt of each problem of the batch.
        errors: The first error of each failed problem, by its index in the batch.
    """

    def __init__(self, prompts: Sequence[str]) -> None:
        """Start without failures."""
        self.prompts = prompts
        self.errors: dict[int, ItemError] = {}

    def add(self, text: str, error: ItemError) -> None:
        """Record the failure of a prompt, or of a prompt with the start of a solution."""
        prompt = max((prompt for prompt in self.prompts if text.startswith(prompt)), key=len)
        for index, other_prompt in enumerate(self.prompts):
            if other_prompt == prompt:
                self.errors.setdefault(index, error)


class TolerantSampler(StreamingSampler):
    """A sampler that gives empty, truncated completions for the prompts that its engine refuses."""

    def __init__(self, sampler: Sampler, failures: BatchFailures) -> None:
        """Wrap ``sampler``; ``failures`` receives the refused prompts."""
        self.model = sampler.model
        self._sampler = sampler
        self._failures = failures

    def stream(self, prompts: Sequence[str], spec: SamplingSpec) -> Iterator[PromptResult]:
        """Yield ``spec.n`` completions of each prompt, in the order in which they finish."""
        for outcome in stream_outcomes(self._sampler, prompts, spec):
            if prompts[outcome.prompt_index] in self._failures.prompts:
                outcome = refuse_full_context(outcome)
            if isinstance(outcome, PromptFailure):
                self._failures.add(prompts[outcome.prompt_index], outcome.error)
                empty = Completion("", "length", 0)
                yield PromptResult(outcome.prompt_index, [empty] * spec.n)
            else:
                yield outcome


class TolerantScorer:
    """A scorer that gives no rewards for the solutions that its engine refuses."""

    def __init__(self, scorer: Scorer, failures: BatchFailures) -> None:
        """Wrap ``scorer``; ``failures`` receives the prompts of the refused solutions."""
        self.model = scorer.model
        self._scorer = scorer
        self._failures = failures

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Return the step rewards of each item; see :class:`fsdpo_data.engines.scorers.Scorer`."""
        rewards: list[list[float] | None] = []
        for item, outcome in zip(items, score_outcomes(self._scorer, items), strict=True):
            if isinstance(outcome, ItemError):
                self._failures.add(item.prompt, outcome)
                rewards.append(None)
            else:
                rewards.append(outcome)
        return rewards
