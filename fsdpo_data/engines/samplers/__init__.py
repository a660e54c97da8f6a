"""Samplers: components that generate completions of prompts with one engine and one model."""

from collections.abc import Iterable, Sequence
from functools import partial

from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.samplers.base import PromptResult, Sampler, StreamingSampler
from fsdpo_data.engines.samplers.thinking_passes import sample_in_passes

__all__ = ["PromptResult", "Sampler", "StreamingSampler", "close_engine", "stream"]


def stream(sampler: Sampler, prompts: Sequence[str], spec: SamplingSpec) -> Iterable[PromptResult]:
    """Yield one result per prompt, in the order in which the prompts finish.

    A sampler that does not stream returns all prompts at once. Stop strings and thinking budgets
    need several requests per completion; see :mod:`~fsdpo_data.engines.samplers.thinking_passes`.
    """
    if spec.stop or spec.max_think_tokens:
        return sample_in_passes(partial(_stream_one_pass, sampler), prompts, spec)
    return _stream_one_pass(sampler, prompts, spec)


def _stream_one_pass(
    sampler: Sampler, prompts: Sequence[str], spec: SamplingSpec
) -> Iterable[PromptResult]:
    if isinstance(sampler, StreamingSampler):
        return sampler.stream(prompts, spec)
    return [
        PromptResult(index, completions)
        for index, completions in enumerate(sampler.sample(prompts, spec))
    ]


def close_engine(sampler: Sampler) -> None:
    """Free the memory of a sampler, so that another model can be loaded.

    Only engines with processes of their own, such as vLLM and Ray, have a ``close`` method.
    """
    close = getattr(sampler, "close", None)
    if close is not None:
        close()
