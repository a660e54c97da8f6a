"""A sampler and a scorer."""

from collections.abc import Iterable, Sequence

from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec
from fsdpo_data.engines.options import SamplerOptions, ScorerOptions
from fsdpo_data.engines.registry import SamplerEntry, ScorerEntry
from fsdpo_data.engines.samplers import SampleResult
from fsdpo_data.engines.scorers import ScoreResult, ScorerInput
from fsdpo_data.models.resolve import ResolvedWeights


class ParrotSampler:
    """A sampler with a constant answer."""

    def __init__(self, weights: ResolvedWeights, options: SamplerOptions) -> None:
        self.model = weights.ref

    def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterable[SampleResult]:
        """Yield the index of each prompt with ``spec.n`` completions."""
        completion = Completion("It is clear. The answer is 42.", "stop", n_tokens=9)
        for index in range(len(prompts)):
            yield index, [completion] * spec.n


class ShortScorer:
    """A scorer that rewards a step by one over its number of words."""

    def __init__(self, weights: ResolvedWeights, options: ScorerOptions) -> None:
        self.model = weights.ref

    def score(self, items: Sequence[ScorerInput]) -> Iterable[ScoreResult]:
        """Yield the index of each item with a reward in [0, 1] for each step."""
        for index, item in enumerate(items):
            yield index, [1 / max(1, len(step.split())) for step in item.steps]


PARROT = SamplerEntry(name="parrot", loader=ParrotSampler)
SHORT = ScorerEntry(name="short", loader=ShortScorer, architectures=["*"])
