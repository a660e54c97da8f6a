"""Samplers: components that generate completions of prompts with one engine and one model."""

from fsdpo_data.engines.samplers.base import (
    EngineLoader,
    PromptFailure,
    PromptOutcome,
    PromptResult,
    Sampler,
    StreamingSampler,
    close_engine,
    open_engine,
    raise_failures,
    refuse_full_context,
    stream,
    stream_outcomes,
)
from fsdpo_data.engines.samplers.thinking_passes import LoadedSampler

__all__ = [
    "EngineLoader",
    "LoadedSampler",
    "PromptFailure",
    "PromptOutcome",
    "PromptResult",
    "Sampler",
    "StreamingSampler",
    "close_engine",
    "open_engine",
    "raise_failures",
    "refuse_full_context",
    "stream",
    "stream_outcomes",
]
