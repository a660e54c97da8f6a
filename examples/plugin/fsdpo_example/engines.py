"""A sampler and a scorer."""

from collections.abc import Sequence

from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.engines.options import SamplerOptions, ScorerOptions
from fsdpo_data.engines.registry import SamplerEntry, ScorerEntry
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.models.resolve import ResolvedWeights


class ParrotSampler:
    """A sampler with a constant answer."""

    def __init__(self, weights: ResolvedWeights, options: SamplerOptions) -> None:
        self.model = weights.ref

    def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        """Return ``spec.n`` completions of each prompt."""
        completion = Completion("It is clear. The answer is 42.", "stop", n_tokens=9)
        return [[completion] * spec.n for _ in prompts]


class ShortScorer:
    """A scorer that rewards a step by one over its number of words."""

    def __init__(self, weights: ResolvedWeights, options: ScorerOptions) -> None:
        self.model = weights.ref

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Return a reward in [0, 1] for each step."""
        return [[1 / max(1, len(step.split())) for step in item.steps] for item in items]


PARROT = SamplerEntry(name="parrot", loader=ParrotSampler)
SHORT = ScorerEntry(name="short", loader=ShortScorer, architectures=["*"])
