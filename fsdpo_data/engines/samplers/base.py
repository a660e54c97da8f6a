"""The interface of samplers: ``Sampler``, and ``StreamingSampler`` for results prompt by prompt."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from fsdpo_data.core.errors import ItemError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.engines.item_errors import process_by_bisection

EngineT = TypeVar("EngineT")


class PromptResult(NamedTuple):
    """The completions of one prompt of a batch."""

    prompt_index: int  #: Index of the prompt in the batch.
    completions: list[Completion]  #: ``SamplingSpec.n`` completions, in the order of their samples.


class PromptFailure(NamedTuple):
    """A prompt of a batch that the engine refuses."""

    prompt_index: int  #: Index of the prompt in the batch.
    error: ItemError  #: The reason.


PromptOutcome: TypeAlias = PromptResult | PromptFailure


class Sampler(Protocol):
    """A component that generates completions of prompts with one model.

    The class of an engine samples in one pass, and its stop strings may apply inside the thinking.
    A sampler that was loaded is a :class:`~fsdpo_data.engines.samplers.LoadedSampler`, which
    applies them after the thinking with any engine.

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

    def stream_outcomes(
        self, prompts: Sequence[str], spec: SamplingSpec
    ) -> Iterator[PromptOutcome]:
        """Yield one result or failure per prompt, in the order in which the prompts finish.

        A failed prompt does not stop the others. Without a method of its own, a sampler that raises
        an error gets the unfinished prompts again in halves, until a failed prompt is alone.

        Raises:
            FsdpoError: if the engine fails, and not only a prompt.
        """
        return _stream_by_bisection(self, prompts, spec)

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


def stream_outcomes(
    sampler: Sampler, prompts: Sequence[str], spec: SamplingSpec
) -> Iterator[PromptOutcome]:
    """Yield one result or failure per prompt; see :meth:`StreamingSampler.stream_outcomes`."""
    if isinstance(sampler, StreamingSampler):
        return sampler.stream_outcomes(prompts, spec)
    return _stream_by_bisection(sampler, prompts, spec)


def _stream_by_bisection(
    sampler: Sampler, prompts: Sequence[str], spec: SamplingSpec
) -> Iterator[PromptOutcome]:
    """Yield the outcomes of a sampler that raises an error for a prompt that it refuses."""

    def process(batch: Sequence[str]) -> Iterator[tuple[int, list[Completion]]]:
        yield from stream(sampler, batch, spec)

    for index, outcome in process_by_bisection(process, prompts):
        if isinstance(outcome, ItemError):
            yield PromptFailure(index, outcome)
        else:
            yield PromptResult(index, outcome)


def refuse_full_context(outcome: PromptOutcome) -> PromptOutcome:
    """Return the failure of a prompt that fills the context of the model; else the outcome.

    Engines give such a prompt empty, truncated completions, because a solution may fill the context
    after some of its steps. As completions of a problem, they would count as wrong answers.
    """
    if isinstance(outcome, PromptFailure):
        return outcome
    is_full = all(
        completion.finish_reason == "length" and completion.n_tokens == 0
        for completion in outcome.completions
    )
    if not is_full:
        return outcome
    error = ItemError("the prompt is longer than the context of the model")
    return PromptFailure(outcome.prompt_index, error)


def raise_failures(outcomes: Iterable[PromptOutcome]) -> Iterator[PromptResult]:
    """Yield the results, and raise the error of the first failed prompt after all results.

    Raises:
        ItemError: if the engine refuses a prompt.
    """
    error: ItemError | None = None
    for outcome in outcomes:
        if isinstance(outcome, PromptResult):
            yield outcome
        else:
            error = error or outcome.error
    if error is not None:
        raise error


def close_engine(engine: Any) -> None:
    """Free the memory of a sampler or scorer, so that another model can be loaded.

    Only engines with processes of their own, such as vLLM and Ray, have a ``close`` method.
    """
    close = getattr(engine, "close", None)
    if close is not None:
        close()


class EngineLoader(Generic[EngineT]):
    """A function that loads a sampler or scorer once, for all of its callers.

    Args:
        load: Loads the engine. Called only if the engine is needed, because loading is slow.
    """

    def __init__(self, load: Callable[[], EngineT]) -> None:
        self._load = load
        self._engine: EngineT | None = None

    def __call__(self) -> EngineT:
        """Return the engine; the first call loads it."""
        if self._engine is None:
            self._engine = self._load()
        return self._engine

    def close(self) -> None:
        """Free the engine, if it is loaded. The next call loads it again."""
        if self._engine is not None:
            close_engine(self._engine)
            self._engine = None


@contextlib.contextmanager
def open_engine(
    load: Callable[[], EngineT], *, keeps_engine: bool = False
) -> Iterator[EngineLoader[EngineT]]:
    """Load a sampler or scorer at most once in this context, and free its memory at the end.

    Args:
        load: Loads the engine. Called only if the engine is needed, because loading is slow.
        keeps_engine: Whether the engine stays loaded, because its owner uses it again.
    """
    loader = EngineLoader(load)
    try:
        yield loader
    finally:
        if not keeps_engine:
            loader.close()
