"""The Scorer seam: solutions in, one reward per step out; synchronous, batched, order-keeping."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fsdpo_data.core.identity import ModelRef


@dataclass(frozen=True, slots=True)
class ScorerInput:
    """What a scorer reads."""

    prompt: str  #: The rendered prompt.
    steps: Sequence[str]  #: A solution, or the beginning of one; joined they are its text.
    #: What was asked, bare: reward models that others published put it into prompts of their own.
    question: str | None = None


class Scorer(Protocol):
    """Rewards steps; the same scorer serves pairs, best-of-N and beam search."""

    model: ModelRef

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Return for each item, in their order, one number per step.

        In [0, 1], but for published models whose convention says that it is no probability.
        None where it is longer than the model reads: a step that was not read has no reward.
        """
        ...
