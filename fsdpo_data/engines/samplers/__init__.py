"""Samplers: components that generate completions of prompts with one engine and one model."""

from fsdpo_data.engines.samplers.base import (
    PromptFailure,
    PromptOutcome,
    PromptResult,
    Sampler,
    StreamingSampler,
    close_engine,
    close_loaded_engine,
    raise_failures,
    refuse_full_context,
    stream,
    stream_outcomes,
)
from fsdpo_data.engines.samplers.thinking_passes import LoadedSampler

__all__ = [
    "LoadedSampler",
    "PromptFailure",
    "PromptOutcome",
    "PromptResult",
    "Sampler",
    "StreamingSampler",
    "close_engine",
    "close_loaded_engine",
    "raise_failures",
    "refuse_full_context",
    "stream",
    "stream_outcomes",
]
