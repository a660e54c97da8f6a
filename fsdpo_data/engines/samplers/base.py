"""The interface of samplers: ``Sampler``, and ``StreamingSampler`` for results prompt by prompt."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, SamplingSpec


class PromptResult(NamedTuple):
    """The completions of one prompt of a batch."""

    prompt_index: int  #: Index of the prompt in the batch.
    completions: list[Completion]  #: ``SamplingSpec.n`` completions, in the order of their samples.


class Sampler(Protocol):
    """A component that generates completions of prompts with one model.

    Sample ``i`` of a prompt depends only on (seed, prompt, i), not on the rest of the batch.
    Servers are the exception, because they do not guarantee their seeds.
    """

    model: ModelRef  #: The model that writes the completions.

    def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        """Sample ``spec.n`` completions of each prompt.

        Returns:
            One list of completions per prompt, in the order of the prompts.
        """
        ...


class StreamingSampler:
    """Base class of samplers that return each prompt as soon as its completions are finished."""

    model: ModelRef  #: The model that writes the completions.

    def stream(self, prompts: Sequence[str], spec: SamplingSpec) -> Iterator[PromptResult]:
        """Yield one result per prompt, in the order in which the prompts finish."""
        raise NotImplementedError

    def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        """Sample ``spec.n`` completions of each prompt, and wait for all prompts."""
        completions_by_prompt = dict(self.stream(prompts, spec))
        return [completions_by_prompt[index] for index in range(len(prompts))]
