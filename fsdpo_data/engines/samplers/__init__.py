"""Samplers: components that generate completions of prompts with one engine and one model."""

from fsdpo_data.engines.samplers.base import (
    EngineLoader,
    Sampler,
    SampleResult,
    check_stop_is_known,
    close_engine,
    open_engine,
)
from fsdpo_data.engines.samplers.thinking_passes import LoadedSampler

__all__ = [
    "EngineLoader",
    "LoadedSampler",
    "SampleResult",
    "Sampler",
    "check_stop_is_known",
    "close_engine",
    "open_engine",
]
