"""Rows of tokenised training data, which the trainer shuffles, packs and batches."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from fsdpo_data.engines.step_tokens import EncodedSolution


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """A row of training data, or a pack of several rows."""

    length: int  #: Number of tokens of the row, or of all rows of the pack. A padding row has 0.
    #: Identity of the prompt, whose rows may share it; None for a row of its own.
    group: Hashable = None
    packed: Sequence[Self] = ()  #: The other rows of a pack.

    def without_loss(self) -> Self:
        """Return the row with nothing that the loss reads; the model can still compute it."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionRow(TrainingRow):
    """A row of one solution."""

    solution: EncodedSolution  #: The tokens of the prompt and the solution.

    def without_loss(self) -> Self:
        """Return the row with all tokens in its prompt, because the loss reads completions."""
        n_tokens = len(self.solution.input_ids)
        return replace(self, solution=replace(self.solution, prompt_length=n_tokens))
