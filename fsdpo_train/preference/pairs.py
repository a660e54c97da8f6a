"""Preference pairs: read from a dataset or file, checked, and grouped by prompt."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.sampling import Prompt
from fsdpo_data.dataset.stage_records import has_imported_pairs
from fsdpo_data.pairs.statistics import find_first_difference
from fsdpo_train.losses.preference_losses import PreferenceLoss
from fsdpo_train.trainer.row_formats import pair_rows
from fsdpo_train.trainer.row_source import (
    LocatedRow,
    Row,
    TrainingData,
    open_data,
    read_question,
)

if TYPE_CHECKING:
    import numpy as np

    from fsdpo_data.engines.step_tokens import EncodedSolution

#: Rewards, and γ times rewards, must be smaller than this in absolute value: they are in float32.
_MAX_REWARD = 1e30


@dataclass(frozen=True, slots=True)
class PairedSolution:
    """A chosen or a rejected solution, with its step rewards, tokens and reference.

    A solution is read as text. Solutions with the same text, rewards and end are equal.
    """

    steps: tuple[str, ...]  #: The steps; joined they are the text.
    rewards: tuple[float, ...]  #: The reward of each step.
    ends_with_eos: bool = True  #: Whether an end-of-sequence token follows the last step.
    #: Token ids with the prompt; None until :func:`.data.tokenize_groups` adds them.
    encoded: EncodedSolution | None = field(default=None, compare=False)
    #: Log-probability of each completion token under the reference; None until
    #: :func:`.reference.add_reference` adds them, and for losses without a reference.
    reference: np.ndarray | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        """The text of the solution."""
        return "".join(self.steps)

    @property
    def tokens(self) -> EncodedSolution:
        """The token ids of a tokenised solution, with the prompt."""
        assert self.encoded is not None, "tokenize_groups adds the tokens"
        return self.encoded

    def end_at_step(self, count: int) -> Self:
        """Return the first ``count`` steps without an end-of-sequence token, as in Step-DPO's code.

        A solution with fewer steps differs by its end, so it keeps the token.
        """
        if count > len(self.steps):
            return self
        return replace(
            self, steps=self.steps[:count], rewards=self.rewards[:count], ends_with_eos=False
        )


@dataclass(slots=True)
class PromptGroup:
    """The different solutions of one prompt, and the pairs between them."""

    prompt: Prompt  #: The rendered prompt, with its question if the data has it.
    #: The different solutions of the prompt, in the order of their first pair.
    solutions: list[PairedSolution] = field(default_factory=list)
    #: The different pairs, as (chosen, rejected) indices into ``solutions``.
    pairs: list[tuple[int, int]] = field(default_factory=list)
    duplicate_pairs: int = 0  #: Number of rows whose pair is already in ``pairs``.
    #: Number of rows that prefer the other text of two than an earlier row does.
    contradictory_pairs: int = 0

    def select(
        self, solution_indices: Sequence[int], pairs: Sequence[tuple[int, int]] = ()
    ) -> PromptGroup:
        """Return a group with some of the solutions, and ``pairs`` of these solutions.

        Args:
            solution_indices: The solutions of the new group, as indices into this group.
            pairs: The pairs of the new group, as indices into this group.
        """
        new_index = {old: new for new, old in enumerate(solution_indices)}
        return PromptGroup(
            prompt=self.prompt,
            solutions=[self.solutions[index] for index in solution_indices],
            pairs=[(new_index[chosen], new_index[rejected]) for chosen, rejected in pairs],
        )

    def restrict_to_pairs(self, pairs: Sequence[tuple[int, int]]) -> PromptGroup:
        """Return a group with only ``pairs`` and their solutions."""
        return self.select(sorted({index for pair in pairs for index in pair}), pairs)


def open_pairs(
    data: Sequence[str | Path], loss: PreferenceLoss, *, allow_benchmark: bool = False
) -> TrainingData:
    """Open the pairs in ``data``; see :func:`~fsdpo_train.trainer.row_source.open_source`.

    Raises:
        InputError: if ``data`` has no such pairs, or ``loss`` weights steps by the rewards of an
            outcome reward model, or ``loss`` trains the end of imported pairs.
    """
    pairs = open_data(data, pair_rows(loss), allow_benchmark=allow_benchmark)
    for source in pairs.sources:
        manifest = source.manifest
        if manifest and has_imported_pairs(manifest) and not loss.ends_at_first_difference:
            raise InputError(
                f"the imported pairs of {source.name} end with the step that differs, and the loss "
                f"{loss.name} would teach the policy to stop there. Use `loss=step-dpo`.",
                field="loss",
                value=loss.name,
            )
        if manifest and manifest.has_outcome_rewards and loss.uses_rewards:
            raise InputError(
                f"{source.name} has the rewards of an outcome reward model, which was trained on "
                f"last steps only, and the loss {loss.name} weights all steps. Score with a "
                "process reward model, or use a loss without step rewards, such as `loss=dpo`.",
                field="loss",
                value=loss.name,
            )
    return pairs


def group_by_prompt(
    rows: Iterable[LocatedRow], loss: PreferenceLoss, gamma: float = 1.0
) -> list[PromptGroup]:
    """Check pairs and group them by prompt, with each different solution once.

    Losses without step rewards ignore the reward columns.

    Args:
        rows: The pairs.
        loss: The loss.
        gamma: Factor γ of the rewards in the loss.

    Raises:
        InputError: if a row cannot be used, or there are no rows.
    """
    groups: dict[str, PromptGroup] = {}
    solution_indices: dict[str, dict[PairedSolution, int]] = {}
    preferences: dict[str, set[tuple[str, str]]] = {}  # texts, which may have several rewards
    for location, row in rows:
        _check_row(location, row, loss)
        chosen, rejected = _read_sides(location, row, loss)
        if "gamma" in loss.options and gamma < math.inf:
            for side in (chosen, rejected):
                _check_scaled_rewards(location, side.rewards, gamma)
        group = groups.setdefault(
            row["prompt"], PromptGroup(Prompt(row["prompt"], read_question(row)))
        )
        index_of = solution_indices.setdefault(row["prompt"], {})
        for side in (chosen, rejected):
            if side not in index_of:
                index_of[side] = len(group.solutions)
                group.solutions.append(side)
        known_preferences = preferences.setdefault(row["prompt"], set())
        known_preferences.add((chosen.text, rejected.text))
        group.contradictory_pairs += (rejected.text, chosen.text) in known_preferences
        pair = (index_of[chosen], index_of[rejected])
        if pair in group.pairs:  # truncation can make different pairs equal
            group.duplicate_pairs += 1
        else:
            group.pairs.append(pair)
    if not groups:
        columns = pair_rows(loss).file_columns
        raise InputError(f"the data has no pairs: expected rows of {columns}.")
    return list(groups.values())


def _check_row(location: str, row: Row, loss: PreferenceLoss) -> None:
    """Raise an InputError if a column for the loss is missing, or the prompt is not a text."""
    missing = pair_rows(loss).missing_columns([name for name in row if row[name] is not None])
    if missing:
        message = f"{location}: the columns {', '.join(missing)} are missing."
        if all("rewards" in name for name in missing):
            message += f" The loss {loss.name} needs them."
        raise InputError(message)
    # The prompt must not be empty, because its last token predicts the first completion token.
    if not isinstance(row["prompt"], str) or not row["prompt"]:
        raise InputError(f"{location}: prompt: expected a text, with the chat template filled in.")


def _check_scaled_rewards(location: str, rewards: Sequence[float], gamma: float) -> None:
    """Raise an InputError if γ times a reward is too large for float32."""
    for reward in rewards:
        if gamma * abs(reward) >= _MAX_REWARD:
            raise InputError(
                f"{location}: the reward {reward:g} times {gamma:g} is too large for float32. Set "
                "a lower gamma, or score the dataset again.",
                field="gamma",
                value=gamma,
            )


def _read_sides(
    location: str, row: Row, loss: PreferenceLoss
) -> tuple[PairedSolution, PairedSolution]:
    """Return the chosen and the rejected side of a row, shortened if the loss asks for it."""
    chosen = _pair_side(location, row, "chosen", loss)
    rejected = _pair_side(location, row, "rejected", loss)
    if chosen.text == rejected.text:
        raise InputError(
            f"{location}: chosen and rejected are the same text, {chosen.steps[0]!r} … "
            "Leave the pair out."
        )
    if not loss.ends_at_first_difference:
        return chosen, rejected
    difference = find_first_difference(row)
    if not difference.chosen_step and not difference.rejected_step:
        raise InputError(
            f"{location}: chosen and rejected differ only in white space, {chosen.steps[0]!r} … "
            "Leave the pair out."
        )
    n_steps = difference.step + 1
    return chosen.end_at_step(n_steps), rejected.end_at_step(n_steps)


def _pair_side(location: str, row: Row, side: str, loss: PreferenceLoss) -> PairedSolution:
    """Return one side of a row, ``chosen`` or ``rejected``.

    A text without steps is one step. For losses without step rewards, all rewards are 0.

    Raises:
        InputError: if steps, rewards and text do not match.
    """
    steps = row.get(f"{side}_steps")
    rewards = row.get(f"{side}_rewards")
    if steps is None:
        if not isinstance(row[side], str) or not row[side]:
            raise InputError(
                f"{location}: {side}: expected a non-empty text, with the chat template filled in."
            )
        steps = [row[side]]
    if not loss.uses_rewards and isinstance(steps, list):
        rewards = [0.0] * len(steps)
    if not (isinstance(steps, list) and isinstance(rewards, list)):
        raise InputError(f"{location}: {side}_steps and {side}_rewards: expected two lists.")
    if len(steps) != len(rewards):
        raise InputError(
            f"{location}: {len(rewards)} {side}_rewards for {len(steps)} {side}_steps. "
            "Expected one reward per step: score the dataset again."
        )
    if not steps or not all(isinstance(step, str) and step for step in steps):
        raise InputError(
            f"{location}: {side}_steps is empty or has an empty step. Expected non-empty texts."
        )
    if row.get(side) is not None and row[side] != "".join(steps):
        raise InputError(f"{location}: {side}_steps do not join to the text in {side}.")
    for reward in rewards:
        if not _is_usable_reward(reward):
            raise InputError(
                f"{location}: reward {reward!r} in {side}_rewards is not a usable number. "
                "Score the dataset again."
            )
    return PairedSolution(steps=tuple(steps), rewards=tuple(map(float, rewards)))


def _is_usable_reward(reward: Any) -> bool:
    return isinstance(reward, (int, float)) and abs(reward) < _MAX_REWARD
