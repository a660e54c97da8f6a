"""The Sampler seam: prompts in, completions out; synchronous, batched, order-keeping."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled continuation of a prompt.

    Attributes:
        text: What the model wrote, special tokens and stop string removed, else untouched.
        finish_reason: ``stop`` (end-of-sequence or a stop string) or ``length`` (ran into
            ``max_tokens``: truncated).
        n_tokens: Tokens generated, end-of-sequence included.
        seconds: This completion's share of the sampler's wall-clock time.
        stop_string: The stop string that ended it; None if it ended by itself or on length.
    """

    text: str
    finish_reason: FinishReason
    n_tokens: int
    seconds: float = 0.0
    stop_string: str | None = None


@dataclass(frozen=True, slots=True)
class SamplingSpec:
    """How to sample. Everything in it changes what comes out, so all of it is in the digest.

    Attributes:
        n: Completions per prompt (the paper's M).
        temperature: 0 is greedy.
        top_p: Nucleus mass kept.
        max_tokens: Tokens per completion at most.
        stop: Strings that end a completion; they are not part of its text.
        seed: Sample ``i`` of a prompt depends on (seed, prompt, i) only, so raising ``n`` or
            resuming a run changes no earlier sample.
    """

    n: int = 32
    temperature: float = 0.8
    top_p: float = 1.0
    max_tokens: int = 1024
    stop: tuple[str, ...] = field(default=())
    seed: int = 0

    def __post_init__(self) -> None:
        limits = (
            ("samples", self.n, self.n >= 1, "a whole number of at least 1"),
            ("temperature", self.temperature, self.temperature >= 0, "0 (greedy) or more"),
            ("top-p", self.top_p, 0 < self.top_p <= 1, "more than 0 and at most 1"),
            ("max-tokens", self.max_tokens, self.max_tokens >= 1, "at least 1"),
        )
        for option, value, ok, expected in limits:
            if not ok:
                raise InputError(f"--{option} {value}: expected {expected}.")
        if self.temperature == 0 and self.n > 1:
            raise InputError(
                f"--temperature 0 --samples {self.n}: greedy decoding gives the same text "
                f"{self.n} times. Use --samples 1, or a temperature above 0."
            )

    def prompt_seed(self, prompt: str) -> int:
        """Return the seed of sample 0 of ``prompt``; sample ``i`` uses this plus ``i``."""
        key = f"{self.seed}\0{prompt}".encode(errors="surrogatepass")
        return int.from_bytes(hashlib.sha256(key).digest()[:4], "big") >> 1


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
