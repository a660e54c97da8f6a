"""Samplers: components that generate completions of prompts with one engine and one model."""

from fsdpo_data.engines.samplers.base import (
    PromptResult,
    Sampler,
    StreamingSampler,
    close_engine,
    close_loaded_engine,
    stream,
)
from fsdpo_data.engines.samplers.thinking_passes import LoadedSampler

__all__ = [
    "LoadedSampler",
    "PromptResult",
    "Sampler",
    "StreamingSampler",
    "close_engine",
    "close_loaded_engine",
    "stream",
]
