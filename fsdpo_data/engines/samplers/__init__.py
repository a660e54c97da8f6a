"""The Sampler seam: prompts in, completions out; synchronous, batched, order-keeping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, SamplingSpec


class Sampler(Protocol):
    """Completes prompts: one list of ``spec.n`` completions per prompt, in the prompts' order."""

    model: ModelRef

    def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        """Sample ``spec.n`` completions for each prompt."""
        ...


def release(sampler: Sampler) -> None:
    """Take back what a sampler holds outside this process, where it holds something.

    For whoever loads another model next: engines with processes of their own have ``close``.
    """
    close = getattr(sampler, "close", None)
    if close is not None:
        close()
