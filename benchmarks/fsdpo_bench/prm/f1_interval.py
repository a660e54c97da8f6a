"""The 95 % interval of the F1 score of first wrong steps, over resampled solutions.

Array suffixes: ``R`` solutions, ``T`` thresholds, ``D`` draws of the bootstrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fsdpo_data.core.lazy import np

NO_ERROR = -1  #: Label of solutions without a wrong step.
_BOOTSTRAP_DRAWS = 2_000  #: Number of resampled sets of solutions.
_QUANTILES = (0.025, 0.975)  #: Bounds of a 95 % interval.


class LabelledRewards(NamedTuple):
    """The step rewards and labels of some solutions."""

    #: One reward per step; None if the model cannot read the solution.
    rewards: Sequence[Sequence[float] | None]
    labels: Sequence[int]  #: Indices of first wrong steps, or ``NO_ERROR``.

    @property
    def has_both_labels(self) -> bool:
        """Whether there are solutions with an error, and solutions without one."""
        return len({label == NO_ERROR for label in self.labels}) == 2


def f1_interval(
    test: LabelledRewards, thresholds: Sequence[float], tuning: LabelledRewards | None = None
) -> tuple[float, float] | None:
    """Return the percentile interval of F1, in which every draw chooses its own threshold.

    Solutions with and without an error are resampled separately, so their numbers stay.

    Args:
        test: The solutions that count.
        thresholds: The candidates for the threshold, in ascending order; one fixed threshold
            without ``tuning``.
        tuning: The solutions that choose the threshold, which may be ``test`` itself.

    Returns:
        The interval; None if the solutions that count all have an error, or none has one.
    """
    if not test.has_both_labels:
        return None
    rng = np.random.default_rng(0)
    f1_DT = _resampled_f1(test, thresholds, rng)
    tuning_f1_DT = f1_DT
    if tuning is not None and tuning is not test:
        tuning_f1_DT = _resampled_f1(tuning, thresholds, rng)
    chosen_D = tuning_f1_DT.argmax(axis=1)
    low, high = np.quantile(f1_DT[np.arange(len(chosen_D)), chosen_D], _QUANTILES)
    return float(low), float(high)


def _resampled_f1(
    solutions: LabelledRewards, thresholds: Sequence[float], rng: np.random.Generator
) -> np.ndarray:
    """Return F1 of each resampled set at each threshold, of shape (D, T)."""
    is_hit_RT = _find_hits(solutions, thresholds)
    has_error_R = np.array(solutions.labels) != NO_ERROR
    with_error_DT = _resampled_means(is_hit_RT[has_error_R], rng)
    without_error_DT = _resampled_means(is_hit_RT[~has_error_R], rng)
    total_DT = with_error_DT + without_error_DT
    f1_DT: np.ndarray = 2 * with_error_DT * without_error_DT / np.where(total_DT > 0, total_DT, 1)
    return f1_DT


def _resampled_means(is_hit_RT: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the mean of each column over each resampled set of rows, of shape (D, T)."""
    n_rows = len(is_hit_RT)
    counts_DR = rng.multinomial(n_rows, [1 / n_rows] * n_rows, _BOOTSTRAP_DRAWS)
    means_DT: np.ndarray = counts_DR @ is_hit_RT / n_rows
    return means_DT


def _find_hits(solutions: LabelledRewards, thresholds: Sequence[float]) -> np.ndarray:
    """Return whether the prediction for each solution is right at each threshold: (R, T).

    It is right if no reward before the first wrong step is below the threshold, and the reward of
    this step is. Without a wrong step, no reward may be below the threshold.
    """
    above_R = []
    up_to_R = []
    for rewards, label in zip(solutions.rewards, solutions.labels, strict=True):
        if rewards is None:
            above_R.append(np.inf)
            up_to_R.append(-np.inf)
        elif label == NO_ERROR:
            above_R.append(-np.inf)
            up_to_R.append(min(rewards, default=np.inf))
        else:
            above_R.append(rewards[label])
            up_to_R.append(min(rewards[:label], default=np.inf))
    threshold_T = np.array(thresholds)
    is_above_RT = threshold_T > np.array(above_R)[:, None]
    is_hit_RT: np.ndarray = is_above_RT & (threshold_T <= np.array(up_to_R)[:, None])
    return is_hit_RT
