"""Aggregates of step rewards: a solution without steps has no reward."""

from __future__ import annotations

import statistics

import polars as pl
import pytest

from fsdpo_data.steps.rewards import AGGREGATES, Aggregate, aggregate

#: Step rewards of an empty, an unscored and a scored solution.
STEP_REWARDS = pl.Series("step_rewards", [[], None, [0.5, 0.25]], dtype=pl.List(pl.Float64))
#: An aggregate of a plug-in, and one whose expression gives a number for an empty list.
OWN_AGGREGATES = (
    Aggregate(name="median", compute=statistics.median),
    Aggregate("count", len, lambda rewards: rewards.list.len().cast(pl.Float64)),
)


@pytest.mark.parametrize("entry", [*AGGREGATES.values(), *OWN_AGGREGATES], ids=lambda e: e.name)
def test_a_solution_without_steps_has_no_reward(entry: Aggregate) -> None:
    frame = STEP_REWARDS.to_frame()
    for rows in (frame, frame.head(1)):
        rewards = rows.select(entry.to_expr(pl.col("step_rewards"))).to_series().to_list()
        assert rewards == [None, None, float(entry.compute([0.5, 0.25]))][: len(rewards)]


@pytest.mark.parametrize("name", AGGREGATES)
def test_the_reward_of_no_steps_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="has no reward"):
        aggregate([], name)
