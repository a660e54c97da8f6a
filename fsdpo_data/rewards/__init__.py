"""Reward functions for reinforcement learning in other trainers, without a dependency on one.

    from fsdpo_data import rewards

    outcome = rewards.outcome(gold_column="answer")
    process = rewards.process("Qwen/Qwen2.5-Math-PRM-7B", question_column="question")
    GRPOTrainer(reward_funcs=[outcome, process], ...)

A reward function has the form of TRL's ``reward_funcs``. The adapter converts it for verl. Both
forms call the same method, so the rewards are equal.

Reward functions run in any thread, and in several threads at once, because they need no signals.
They can be pickled. A reward model is loaded once, at the first call, and concurrent calls share
its batches.

The reward is None if the grader left the answer undecided, or if the gold is missing or unreadable.
It is also None if the completion is longer than the context of the reward model. TRL leaves such a
completion out of the baseline of its group. verl needs a number; see the adapter.
"""

from fsdpo_data.rewards.adapters import verl_compute_score
from fsdpo_data.rewards.outcome_reward import OutcomeReward, outcome
from fsdpo_data.rewards.process_reward import ProcessReward, StepRewards, process
from fsdpo_data.rewards.reward_function import RewardFunction, Rollout

__all__ = [
    "OutcomeReward",
    "ProcessReward",
    "RewardFunction",
    "Rollout",
    "StepRewards",
    "outcome",
    "process",
    "verl_compute_score",
]
