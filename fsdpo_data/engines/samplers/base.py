"""The interface of samplers, and the loading of engines when they are needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec
from fsdpo_data.engines.item_errors import ItemResult

EngineT = TypeVar("EngineT")
#: The index of a prompt in its batch, and its completions or the error with which it fails.
SampleResult: TypeAlias = ItemResult[list[Completion]]


class Sampler(Protocol):
    """A component that generates completions of prompts with one model.

    The class of an engine samples in one pass, and its stop strings may apply inside the thinking.
    A sampler that was loaded is a :class:`~fsdpo_data.engines.samplers.LoadedSampler`, which
    applies them after the thinking with any engine.

    Sample ``i`` of a prompt depends only on (seed, prompt, i), not on the rest of the batch.
    Servers are the exception, because they do not guarantee their seeds.
    """

    model: ModelRef  #: The model that writes the completions.

    def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterable[SampleResult]:
        """Yield one result per prompt, in the order in which the prompts finish.

        A result is the index of the prompt with its ``spec.n`` completions, or with the reason why
        the engine refuses the prompt. An engine that cannot tell which prompt it refuses raises an
        error, and :class:`~fsdpo_data.engines.samplers.LoadedSampler` finds the prompt.

        Raises:
            FsdpoError: if the engine fails, and not only a prompt.
        """
        ...


def check_stop_is_known(completion: Completion) -> None:
    """Check that the engine tells a stop string from the end of the sequence.

    Raises:
        InputError: if one of them ended the completion, and the engine does not state which.
    """
    if completion.finish_reason == "stop" and not completion.is_stop_known:
        raise InputError(
            "the server does not name the stop string that ended a completion. The end of a step "
            "or of the thinking therefore looks like the end of the solution. Serve the model with "
            "vLLM or SGLang, or use another sampler."
        )


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
def open_engine(load: Callable[[], EngineT]) -> Iterator[EngineLoader[EngineT]]:
    """Load a sampler or scorer at most once in this context, and free its memory at the end.

    Args:
        load: Loads the engine. Called only if the engine is needed, because loading is slow. An
            :class:`EngineLoader` stays open, because its owner closes it.
    """
    if isinstance(load, EngineLoader):
        yield load
        return
    loader = EngineLoader(load)
    try:
        yield loader
    finally:
        loader.close()
