"""A solution as decoders see it, and what decoding costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fsdpo_data.core.sampling import FinishReason
from fsdpo_data.steps.rewards import aggregate


@dataclass(frozen=True, slots=True)
class Solution:
    """One solution of one problem.

    Attributes:
        text: What the model wrote.
        steps: The steps that tile it.
        finish_reason: ``stop`` if it is finished, ``length`` if it was cut off.
        n_tokens: Tokens generated.
        seconds: Its share of the sampler's time.
        rewards: One reward per step; None where no scorer was asked, or it could not read it.
        scoring_seconds: Its share of the scorer's time.
    """

    text: str
    steps: tuple[str, ...]
    finish_reason: FinishReason
    n_tokens: int
    seconds: float = 0.0
    rewards: tuple[float, ...] | None = None
    scoring_seconds: float = 0.0


def value(rewards: Sequence[float] | None, how: str) -> float | None:
    """Return one number for the rewards of a solution; None where there is no reward."""
    return aggregate(rewards, how) if rewards else None


@dataclass(frozen=True, slots=True)
class Cost:
    """What one decoder spent on one problem.

    Attributes:
        tokens: Tokens generated, dropped ones included.
        prm_calls: Solutions, or beginnings of one, that the process reward model was asked about.
        seconds: Time in the sampler and the scorer.
    """

    tokens: int = 0
    prm_calls: int = 0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.tokens + other.tokens,
            self.prm_calls + other.prm_calls,
            self.seconds + other.seconds,
        )
