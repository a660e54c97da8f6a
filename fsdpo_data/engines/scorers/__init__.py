"""The scorer interface: solutions in, one reward per step out.

Scoring is synchronous and batched, and keeps the order of the solutions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from fsdpo_data.core.errors import ItemError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.engines.item_errors import process_by_bisection

#: The step rewards of an item, None for an item without rewards, or the error of a failed item.
ScoreOutcome: TypeAlias = list[float] | ItemError | None


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


def score_outcomes(scorer: Scorer, items: Sequence[ScorerInput]) -> list[ScoreOutcome]:
    """Return the rewards of each item, or the error with which the item fails.

    A failed item does not stop the others. A scorer without a method ``score_outcomes`` that raises
    an error gets the items again in halves, until a failed item is alone.

    Raises:
        FsdpoError: if the engine fails, and not only an item.
    """
    own_method = getattr(scorer, "score_outcomes", None)
    if own_method is not None:
        outcomes: list[ScoreOutcome] = own_method(items)
        return outcomes

    def process(batch: Sequence[ScorerInput]) -> Iterator[tuple[int, list[float] | None]]:
        yield from enumerate(scorer.score(batch))

    by_index = dict(process_by_bisection(process, items))
    return [by_index[index] for index in range(len(items))]
