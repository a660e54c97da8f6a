"""Accuracy of best-of-N and of votes, averaged over subsets of the samples of each problem.

Array suffixes: ``P`` problems, ``M`` samples of a problem, ``R`` random orders of the samples,
``S`` sizes N of subsets, ``C`` classes of answers.
"""

import math
from collections.abc import Sequence

import numpy as np

from fsdpo_bench.rerank.pool import NO_ANSWER

#: Difference of votes below which the earlier class wins.
_TIE = 1e-9


def best_of_n(reward_PM: np.ndarray, correct_PM: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Return the accuracy of best-of-N for each problem.

    The accuracy is the exact expectation over all subsets of N samples. Equal rewards share their
    rank, as in a random order of the samples. NaN is below every number.

    Returns:
        An array of shape (P, S).
    """
    reward_PM = np.where(np.isnan(reward_PM), -np.inf, reward_PM)
    order_PM = np.argsort(-reward_PM, axis=1, kind="stable")
    ranked_reward_PM = np.take_along_axis(reward_PM, order_PM, axis=1)
    ranked_correct_PM = np.take_along_axis(correct_PM, order_PM, axis=1).astype(float)
    is_new_PM = np.ones_like(correct_PM, dtype=bool)
    is_new_PM[:, 1:] = ranked_reward_PM[:, 1:] != ranked_reward_PM[:, :-1]
    tie_group = np.cumsum(is_new_PM.ravel()) - 1
    group_mean = np.bincount(tie_group, ranked_correct_PM.ravel()) / np.bincount(tie_group)
    shared_correct_PM = group_mean[tie_group].reshape(correct_PM.shape)
    accuracy_PS: np.ndarray = shared_correct_PM @ _rank_probabilities(correct_PM.shape[1], sizes).T
    return accuracy_PS


def _rank_probabilities(n_samples: int, sizes: Sequence[int]) -> np.ndarray:
    """Return the probability that the sample at each rank is the best of N, of shape (S, M)."""
    return np.array(
        [
            [
                math.comb(n_samples - 1 - rank, size - 1) / math.comb(n_samples, size)
                for rank in range(n_samples)
            ]
            for size in sizes
        ]
    )


def pass_at_n(correct_PM: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Return pass@N for each problem, of shape (P, S): best-of-N with a perfect reward model."""
    return best_of_n(correct_PM.astype(float), correct_PM, sizes)


def random_orders(shape: tuple[int, int, int], seed: int) -> np.ndarray:
    """Return random orders of the samples of each problem, of shape (P, R, M).

    The first N samples of an order are a random subset. All votes share the orders, so their
    differences are paired. Each M orders are the rotations of one random order, so every sample is
    in equally many subsets.
    """
    n_problems, n_orders, n_samples = shape
    n_bases = -(-n_orders // n_samples)
    rng = np.random.default_rng(seed)
    base_order = rng.random((n_problems, n_bases, n_samples)).argsort(axis=2)
    rotation = (np.arange(n_samples)[:, None] + np.arange(n_samples)) % n_samples
    return base_order[:, :, rotation].reshape(n_problems, -1, n_samples)[:, :n_orders]


def vote(
    class_PM: np.ndarray,
    correct_PM: np.ndarray,
    order_PRM: np.ndarray,
    sizes: Sequence[int],
    weight_PM: np.ndarray | None = None,
) -> np.ndarray:
    """Return the accuracy of the vote for each problem, averaged over random subsets.

    The class with the largest sum of weights wins, and its earliest sample is the answer. Among
    equal sums, the class with the earliest sample wins. Without any answer, the vote is wrong.

    Args:
        class_PM: Class of the answer of each sample, or ``NO_ANSWER``.
        correct_PM: Whether each sample is correct.
        order_PRM: Random orders of the samples.
        sizes: Values of N.
        weight_PM: Weight of each sample; NaN counts as 0. None for equal weights.

    Returns:
        An array of shape (P, S).
    """
    if weight_PM is None:
        weight_PM = np.ones(class_PM.shape)
    weight_PM = np.nan_to_num(weight_PM, nan=0.0)
    last_S = np.array(sizes) - 1
    return np.array(
        [
            _vote_of_problem(classes, is_correct, orders, last_S, weights)
            for classes, is_correct, orders, weights in zip(
                class_PM, correct_PM, order_PRM, weight_PM, strict=True
            )
        ]
    )


def _vote_of_problem(
    class_M: np.ndarray,
    correct_M: np.ndarray,
    order_RM: np.ndarray,
    last_S: np.ndarray,
    weight_M: np.ndarray,
) -> np.ndarray:
    """Return the accuracy of the votes on one problem, of shape (S,)."""
    names_C = np.unique(class_M[class_M != NO_ANSWER])
    if not len(names_C):
        return np.zeros(len(last_S))
    is_class_RMC = class_M[order_RM][:, :, None] == names_C
    votes_RSC = (weight_M[order_RM][:, :, None] * is_class_RMC).cumsum(axis=1)[:, last_S]
    first_RC = is_class_RMC.argmax(axis=1)
    is_present_RSC = first_RC[:, None, :] <= last_S[None, :, None]
    votes_RSC = np.where(is_present_RSC, votes_RSC - _TIE * first_RC[:, None, :], -np.inf)
    winner_RS = votes_RSC.argmax(axis=2)
    position_RS = np.take_along_axis(first_RC, winner_RS, axis=1)
    correct_RS = correct_M[np.take_along_axis(order_RM, position_RS, axis=1)]
    has_answer_RS = is_present_RSC.any(axis=2)
    accuracy_S: np.ndarray = (correct_RS & has_answer_RS).mean(axis=0)
    return accuracy_S
