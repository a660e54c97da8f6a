"""Preference pairs read from where they were published, checked, and gathered by prompt."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from fsdpo_data.core.errors import InputError
from fsdpo_data.pairs.statistics import find_first_difference
from fsdpo_train.config import REWARD_FREE_LOSSES
from fsdpo_train.trainer.row_source import LocatedRow, Row, RowSource, open_source

#: What is read of a pair.
COLUMNS = ("prompt", "chosen_steps", "rejected_steps", "chosen_rewards", "rejected_rewards")


@dataclass(frozen=True, slots=True)
class PairSide:
    """One side of a pair."""

    steps: tuple[str, ...]
    rewards: tuple[float, ...]
    ends_with_eos: bool = (
        True  #: Whether the solution ends there, so that an end-of-sequence token follows.
    )

    def cut(self, count: int) -> Self:
        """Return the first ``count`` steps; all of them are the solution itself."""
        if count >= len(self.steps):
            return self
        return replace(
            self, steps=self.steps[:count], rewards=self.rewards[:count], ends_with_eos=False
        )


@dataclass(slots=True)
class PromptPairs:
    """The pairs of one prompt."""

    prompt: str
    #: Its different solutions, in the order in which they appear.
    solutions: list[PairSide] = field(default_factory=list)
    #: (chosen, rejected) as indices into ``solutions``, each once.
    pairs: list[tuple[int, int]] = field(default_factory=list)
    duplicate_pairs: int = 0  #: Rows that give a pair again: it counts once.


def open_pairs(data: Path) -> RowSource:
    """Find the pairs that ``data`` names; see :func:`~fsdpo_train.trainer.row_source.open_source`."""
    return open_source(data, COLUMNS, "pairs", ("chosen", "rejected"))


def group_by_prompt(rows: Iterable[LocatedRow], loss: str) -> list[PromptPairs]:
    """Check pairs and gather them by prompt, each different solution once.

    For the loss ``step-dpo`` both sides end with the first step in which they differ; losses that
    read no rewards do without them.

    Raises:
        InputError: naming the row that cannot be used, or if there is none.
    """
    groups: dict[str, PromptPairs] = {}
    places: dict[str, dict[PairSide, int]] = {}
    for place, row in rows:
        _check(place, row, loss)
        sides = [_side(place, row, side) for side in ("chosen", "rejected")]
        if "".join(sides[0].steps) == "".join(sides[1].steps):
            raise InputError(
                f"{place}: chosen and rejected are the same text, {sides[0].steps[0]!r} … "
                "Leave the pair out."
            )
        if loss == "step-dpo":  # both end with the first step in which they differ
            sides = [side.cut(find_first_difference(row)[0] + 1) for side in sides]
        group = groups.setdefault(row["prompt"], PromptPairs(row["prompt"]))
        known = places.setdefault(row["prompt"], {})
        for side in sides:
            if known.setdefault(side, len(group.solutions)) == len(group.solutions):
                group.solutions.append(side)
        pair = known[sides[0]], known[sides[1]]
        if pair in group.pairs:  # different continuations may be equal once they are cut
            group.duplicate_pairs += 1
        else:
            group.pairs.append(pair)
    if not groups:
        raise InputError("the data has no pairs: expected rows of " + ", ".join(COLUMNS) + ".")
    return list(groups.values())


def _check(place: str, row: Row, loss: str) -> None:
    """Refuse a row without what the loss reads."""
    read = [name for name in COLUMNS if loss not in REWARD_FREE_LOSSES or "rewards" not in name]
    if missing := [name for name in read if row.get(name) is None]:
        way_out = f", which the loss {loss} reads" * all("rewards" in name for name in missing)
        raise InputError(f"{place}: no {' and no '.join(missing)}{way_out}.")
    if not isinstance(row["prompt"], str) or not row["prompt"]:  # which predicts the first token
        raise InputError(f"{place}: prompt: expected a text, with the chat template filled in.")


def _side(place: str, row: Row, side: str) -> PairSide:
    steps, rewards = row[f"{side}_steps"], row.get(f"{side}_rewards")
    if rewards is None and isinstance(steps, list):  # and the loss reads none
        rewards = [0.0] * len(steps)
    if not (isinstance(steps, list) and isinstance(rewards, list)):
        raise InputError(f"{place}: {side}_steps and {side}_rewards: expected two lists.")
    if len(steps) != len(rewards):
        raise InputError(
            f"{place}: {len(rewards)} {side}_rewards for {len(steps)} {side}_steps. "
            "Expected one reward per step: score the dataset again."
        )
    if not steps or not all(isinstance(step, str) and step for step in steps):
        raise InputError(f"{place}: {side}_steps has an empty step, or none at all.")
    if row.get(side) is not None and row[side] != "".join(steps):
        raise InputError(f"{place}: {side}_steps do not join to the text in {side}.")
    for reward in rewards:
        # γ multiplies them in float32.
        if not isinstance(reward, (int, float)) or not abs(reward) < 1e30:
            raise InputError(f"{place}: reward {reward!r} in {side}_rewards, no usable number.")
    return PairSide(tuple(steps), tuple(map(float, rewards)))
