"""The scorer interface: solutions in, one reward per step out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from fsdpo_data.core.identity import ModelRef
from fsdpo_data.engines.item_errors import ItemResult, process_by_bisection
from fsdpo_data.engines.samplers.base import close_engine

#: The index of an item in its batch, with one reward per step, None for an item without rewards, or
#: the error with which the item fails.
ScoreResult: TypeAlias = ItemResult[list[float] | None]


@dataclass(frozen=True, slots=True)
class ScorerInput:
    """A solution, or a prefix of a solution, with its prompt."""

    prompt: str  #: The prompt of the policy, with the template applied.
    steps: Sequence[str]  #: The steps; joined, they give the text of the solution.
    #: The question without a template; None if unknown. Published reward models need the question,
    #: because they have their own prompts.
    question: str | None = None


class Scorer(Protocol):
    """A component that computes step rewards, for pairs, best-of-N and beam search.

    A scorer that was loaded is a :class:`LoadedScorer`.
    """

    model: ModelRef  #: The reward model.

    def score(self, items: Sequence[ScorerInput]) -> Iterable[ScoreResult]:
        """Yield one result per item, in the order in which the items finish.

        A result is the index of the item with one reward per step, or with the reason why the
        engine refuses the item. The rewards are None for a solution without rewards: it exceeds the
        context of the model, or no critique of a judge is readable. An engine that cannot tell
        which item it refuses raises an error, and :class:`LoadedScorer` finds the item.

        Rewards are in [0, 1], except for some published models; see ``PrmFormat.is_probability``.

        Raises:
            FsdpoError: if the engine fails, and not only an item.
        """
        ...


class LoadedScorer:
    """A scorer whose failed items do not stop the others, with any engine."""

    def __init__(self, engine: Scorer) -> None:
        self.model = engine.model
        self._engine = engine

    def score(self, items: Sequence[ScorerInput]) -> Iterator[ScoreResult]:
        """Yield the rewards or the error of each item as the items finish."""
        return process_by_bisection(self._engine.score, items)

    def close(self) -> None:
        """Free the memory of the engine."""
        close_engine(self._engine)
