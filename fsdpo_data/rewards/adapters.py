"""Reward functions in the form of verl.

The adapter converts the arguments of verl, and calls :meth:`RewardFunction.score`.

verl needs a number for every completion. A completion without a reward gets the number
``undecided``, and a field next to the number tells it from a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fsdpo_data.rewards.reward_function import RewardFunction, Rollout, missing_column_error

#: The result for one completion in verl: its ``score`` and other numbers that verl logs.
VerlScore = dict[str, float]


def verl_compute_score(
    reward: RewardFunction, *, undecided: float = 0.0
) -> Callable[..., VerlScore]:
    """Return verl's ``compute_score``, which the reward managers ``naive`` and ``dapo`` call.

    Put it into a file, and name the file in ``reward.custom_reward_function.path``, before verl 0.7
    in ``custom_reward_function.path``:

        compute_score = rewards.verl_compute_score(rewards.outcome())

    The gold is verl's ``ground_truth``. Other columns, such as the question, come from
    ``extra_info``. The result has the ``score``, and ``undecided``, which is 1.0 for a completion
    without a reward.

    Args:
        reward: The reward function.
        undecided: The score of a completion without a reward.
    """

    def compute_score(
        data_source: str,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> VerlScore:
        rollout = _verl_rollout(reward, solution_str, ground_truth, extra_info)
        return _verl_score(reward.score([rollout])[0], undecided)

    return compute_score


def _verl_rollout(
    reward: RewardFunction, solution: str, gold: Any, extra_info: Mapping[str, Any] | None
) -> Rollout:
    """Return a rollout with the columns that a reward function reads.

    Raises:
        InputError: if a column is missing.
    """
    fields = {"prompt": "", **(extra_info or {})}
    if reward.gold_column is not None:
        fields[reward.gold_column] = gold
    for name in reward.columns:
        if name not in fields:
            raise missing_column_error(name, fields)
    columns = {name: fields[name] for name in reward.columns}
    return Rollout(fields["prompt"], solution, columns)


def _verl_score(score: float | None, undecided: float) -> VerlScore:
    # verl stacks the values of a key over the batch, so every result has the same keys.
    is_undecided = score is None
    return {"score": undecided if score is None else score, "undecided": float(is_undecided)}
