"""The interface of samplers: ``Sampler``, and ``StreamingSampler`` for results prompt by prompt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import _lru_cache_wrapper
from typing import Any, NamedTuple, Protocol

from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, SamplingSpec


class PromptResult(NamedTuple):
    """The completions of one prompt of a batch."""

    prompt_index: int  #: Index of the prompt in the batch.
    completions: list[Completion]  #: ``SamplingSpec.n`` completions, in the order of their samples.


class Sampler(Protocol):
    """A component that generates completions of prompts with one model.

    The class of an engine samples in one pass: it may ignore ``max_think_tokens``, and its stop
    strings may apply inside the thinking. A sampler that was loaded is a
    :class:`~fsdpo_data.engines.samplers.LoadedSampler`, which adds both to any engine.

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


def stream(sampler: Sampler, prompts: Sequence[str], spec: SamplingSpec) -> Iterable[PromptResult]:
    """Yield one result per prompt, in the order in which the prompts finish.

    A sampler that does not stream returns all prompts at once.
    """
    if isinstance(sampler, StreamingSampler):
        return sampler.stream(prompts, spec)
    return [
        PromptResult(index, completions)
        for index, completions in enumerate(sampler.sample(prompts, spec))
    ]


def close_engine(engine: Any) -> None:
    """Free the memory of a sampler or scorer, so that another model can be loaded.

    Only engines with processes of their own, such as vLLM and Ray, have a ``close`` method.
    """
    close = getattr(engine, "close", None)
    if close is not None:
        close()


def close_loaded_engine(make_engine: _lru_cache_wrapper[Any]) -> None:
    """Free the engine of a cached function, if the function has loaded one.

    The next call of the function loads the engine again.
    """
    if make_engine.cache_info().currsize:
        close_engine(make_engine())
        make_engine.cache_clear()
