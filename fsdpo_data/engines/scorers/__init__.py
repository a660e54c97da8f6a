"""The scorer interface: solutions in, one reward per step out.

Scoring is synchronous and batched, and keeps the order of the solutions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fsdpo_data.core.identity import ModelRef


@dataclass(frozen=True, slots=True)
class ScorerInput:
    """A solution, or a prefix of a solution, with its prompt."""

    prompt: str  #: The prompt of the policy, with the template applied.
    steps: Sequence[str]  #: The steps; joined, they give the text of the solution.
    #: The question without a template; None if unknown. Published reward models need the question,
    #: because they have their own prompts.
    question: str | None = None


class Scorer(Protocol):
    """A component that computes step rewards, for pairs, best-of-N and beam search."""

    model: ModelRef  #: The reward model.

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Return one reward per step for each item, in the order of the items.

        Rewards are in [0, 1], except for some published models; see ``PrmFormat.is_probability``.
        The result is None for a solution without rewards. Either the solution exceeds the context
        of the model, or no critique of a judge is readable.
        """
        ...
