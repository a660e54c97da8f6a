"""The Scorer seam: solutions in, one reward per step out; synchronous, batched, order-keeping."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fsdpo_data.core.identity import ModelRef


@dataclass(frozen=True, slots=True)
class SteppedText:
    """What a scorer reads."""

    prompt: str  #: The rendered prompt.
    steps: Sequence[str]  #: A solution, or the beginning of one; joined they are its text.
    #: What was asked, bare: reward models that others published put it into prompts of their own.
    question: str | None = None


class Scorer(Protocol):
    """Rewards steps; the same scorer serves pairs, best-of-N and beam search."""

    model: ModelRef

    def score(self, items: Sequence[SteppedText]) -> list[list[float] | None]:
        """Return for each item, in their order, one number per step.

        In [0, 1], but for published models whose convention says that it is no probability.
        None where it is longer than the model reads: a step that was not read has no reward.
        """
        ...


class TableScorer:
    """Rewards solutions from a table of texts, one per step; for tests and examples."""

    model = ModelRef("table", "0")

    def __init__(self, rewards: Mapping[str, Sequence[float] | None]) -> None:
        self._rewards = rewards

    def score(self, items: Sequence[SteppedText]) -> list[list[float] | None]:
        """Return the first rewards of the item's text, as many as it has steps."""
        results: list[list[float] | None] = []
        for item in items:
            rewards = self._rewards["".join(item.steps)]
            results.append(None if rewards is None else list(rewards[: len(item.steps)]))
        return results
