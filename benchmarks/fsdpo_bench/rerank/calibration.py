"""Calibration of aggregated step rewards as probabilities of a correct solution."""

from typing import Any

import numpy as np

N_BINS = 10  #: Number of bins of equal width.


def calibration(reward_PM: np.ndarray, correct_PM: np.ndarray) -> dict[str, Any]:
    """Compare rewards in [0, 1] with the outcomes of the solutions.

    Returns:
        A dictionary. ``brier`` is the mean squared error. ``base_brier`` is the error of a constant
        prediction of the accuracy. ``ece`` is the expected calibration error. ``mean_reward`` and
        ``accuracy`` are means over the solutions. ``bins`` has (mean reward, accuracy, solutions)
        of each bin that is not empty.
    """
    is_scored_PM = ~np.isnan(reward_PM)
    rewards = reward_PM[is_scored_PM]
    correct = correct_PM[is_scored_PM].astype(float)
    bin_numbers = np.minimum((rewards * N_BINS).astype(int), N_BINS - 1)
    bins = []
    error = 0.0
    for number in range(N_BINS):
        is_in_bin = bin_numbers == number
        if not is_in_bin.any():
            continue
        mean_reward = float(rewards[is_in_bin].mean())
        accuracy = float(correct[is_in_bin].mean())
        error += abs(mean_reward - accuracy) * float(is_in_bin.mean())
        bins.append((mean_reward, accuracy, int(is_in_bin.sum())))
    accuracy = float(correct.mean())
    return {
        "brier": float(((rewards - correct) ** 2).mean()),
        "base_brier": accuracy * (1 - accuracy),
        "ece": error,
        "mean_reward": float(rewards.mean()),
        "accuracy": accuracy,
        "bins": bins,
    }
