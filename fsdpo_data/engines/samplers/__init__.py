"""The Sampler seam: prompts in, completions out; synchronous, batched, order-keeping."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.engines.samplers.thinking_passes import sample_in_passes


class Sampler(Protocol):
    """Completes prompts: one list of ``spec.n`` completions per prompt, in the prompts' order."""

    model: ModelRef

    def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        """Sample ``spec.n`` completions for each prompt."""
        ...


#: The place of a prompt among those asked for, and its completions.
PromptResult = tuple[int, list[Completion]]


class StreamingSampler:
    """A sampler that finishes one prompt before the other; ``sample`` waits for all."""

    model: ModelRef

    def stream(self, prompts: Sequence[str], spec: SamplingSpec) -> Iterator[PromptResult]:
        """Yield the completions of each prompt when it is finished, in any order."""
        raise NotImplementedError

    def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        """Sample ``spec.n`` completions for each prompt."""
        found = dict(self.stream(prompts, spec))
        return [found[place] for place in range(len(prompts))]


def stream(sampler: Sampler, prompts: Sequence[str], spec: SamplingSpec) -> Iterable[PromptResult]:
    """Return the prompts as they are finished; samplers that do not stream finish all at once."""
    if spec.stop or spec.max_think_tokens:
        return sample_in_passes(partial(_one_pass, sampler), prompts, spec)
    return _one_pass(sampler, prompts, spec)


def _one_pass(
    sampler: Sampler, prompts: Sequence[str], spec: SamplingSpec
) -> Iterable[PromptResult]:
    if isinstance(sampler, StreamingSampler):
        return sampler.stream(prompts, spec)
    return enumerate(sampler.sample(prompts, spec))


def close_engine(sampler: Sampler) -> None:
    """Take back what a sampler holds outside this process, where it holds something.

    For whoever loads another model next: engines with processes of their own have ``close``.
    """
    close = getattr(sampler, "close", None)
    if close is not None:
        close()
