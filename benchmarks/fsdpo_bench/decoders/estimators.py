"""Votes and best-of-N among the samples of a problem, and their estimators over subsets.

The distribution of a choice at N averages over subsets of N of the M samples. A subset keeps the
order of the samples, so the distribution at N = M is the choice among all samples.

A distribution is an array ``chosen_PM`` with the probability that each sample is chosen. A row sums
to less than 1 if a vote chooses nothing, because a subset has no answer.

A vote elects the answer with which most samples agree. Agreement is not transitive, so a sample can
count for several answers (:class:`AnswerClasses`).

Array suffixes: ``P`` problems, ``M`` samples of a problem, ``R`` subsets of samples, ``C`` classes
of answers. Rewards and weights that are None or NaN are missing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from fsdpo_bench.decoders.answer_classes import AnswerClasses
from fsdpo_data.core.lazy import np

#: Difference of the votes of two answers below which the earlier one wins, relative to the most
#: votes. Products of many step rewards are tiny: an absolute difference would make them equal.
_TIE = 1e-9
_ROUNDING_ERROR = 1e-12  #: Upper bound of the rounding error of a sum of probabilities.
_NO_CHOICE = -1  #: Index of the choice from a subset without any answer.


# Choices


def vote(classes: AnswerClasses) -> int | None:
    """Return the first sample whose answer most samples agree with (Wang et al. 2023).

    Among equal answers, the one with the earliest sample wins. Without any answer, the result is
    None.

    Args:
        classes: Classes of the answers of the samples.
    """
    return weighted_vote(classes, np.ones(len(classes.class_M)))


def weighted_vote(
    classes: AnswerClasses, weight_M: Sequence[float | None] | np.ndarray
) -> int | None:
    """Return the first sample whose answer has the largest sum of weights.

    The sum is over the samples whose answers agree with it. Among equal sums, the answer with the
    earliest sample wins. Without any answer, the result is None.

    Args:
        classes: Classes of the answers of the samples.
        weight_M: Weight of each sample. A missing weight counts as 0.
    """
    all_samples_RM = np.ones((1, len(classes.class_M)), dtype=bool)
    [index] = _vote_subsets(classes, np.asarray(weight_M, dtype=float), all_samples_RM)
    return None if index == _NO_CHOICE else int(index)


def best_of_n(reward_M: Sequence[float | None] | np.ndarray) -> int:
    """Return the index of the sample with the highest reward; the earliest of equal ones.

    Args:
        reward_M: One solution reward per sample. A missing reward is below every number.
    """
    return int(_rank_missing_last(np.asarray(reward_M, dtype=float)).argmax())


def _rank_missing_last(rewards: np.ndarray) -> np.ndarray:
    """Replace missing rewards by a value below every number."""
    return np.where(np.isnan(rewards), -np.inf, rewards)


# Choices from random subsets


def expected_values(chosen_PM: np.ndarray, value_PM: np.ndarray) -> np.ndarray:
    """Return the expected value of the chosen sample for each problem; 0 without a choice.

    Args:
        chosen_PM: Probability that the sample is chosen.
        value_PM: A value in [0, 1] of each sample, such as 1 for a correct one.
    """
    expected_P: np.ndarray = (chosen_PM * value_PM).sum(axis=1)
    # A sum of probabilities has rounding errors, and a certain value must be exactly 1.
    return np.where(expected_P > 1 - _ROUNDING_ERROR, 1.0, expected_P)


def distribute_first(shape: tuple[int, ...]) -> np.ndarray:
    """Return the distribution of the choice of the first sample, for P problems of M samples."""
    chosen_PM = np.zeros(shape)
    chosen_PM[:, 0] = 1
    return chosen_PM


def distribute_best_of_n(reward_PM: np.ndarray, size: int) -> np.ndarray:
    """Return the exact distribution of :func:`best_of_n` over all subsets of N samples.

    Args:
        reward_PM: Reward of each sample.
        size: N, from 1 to M.
    """
    n_samples = reward_PM.shape[1]
    order_PM = np.argsort(-_rank_missing_last(reward_PM), axis=1, kind="stable")
    # The sample at a rank is the best one of a subset if all others have later ranks.
    rank_probability_M = np.array(
        [
            math.comb(n_samples - 1 - rank, size - 1) / math.comb(n_samples, size)
            for rank in range(n_samples)
        ]
    )
    chosen_PM = np.empty(reward_PM.shape)
    np.put_along_axis(chosen_PM, order_PM, np.broadcast_to(rank_probability_M, order_PM.shape), 1)
    return chosen_PM


def distribute_vote(
    classes_P: Sequence[AnswerClasses], member_RM: np.ndarray, weight_PM: np.ndarray | None = None
) -> np.ndarray:
    """Return the distribution of :func:`weighted_vote` over subsets.

    Args:
        classes_P: Classes of the answers of the samples, for each problem.
        member_RM: Whether each subset contains each sample, from :func:`subsets_of_size`. Votes
            with the same subsets have paired differences.
        weight_PM: Weight of each sample; None for equal weights, as in :func:`vote`.
    """
    n_samples = member_RM.shape[1]
    if weight_PM is None:
        weight_PM = np.ones((len(classes_P), n_samples))
    indices_PR = [
        _vote_subsets(classes, weight_M, member_RM)
        for classes, weight_M in zip(classes_P, weight_PM, strict=True)
    ]
    return _count_choices(np.array(indices_PR), n_samples)


def distribute_choices(
    choose: Callable[[int, Sequence[int]], int | None], n_problems: int, member_RM: np.ndarray
) -> np.ndarray:
    """Return the distribution of any choice over subsets.

    Args:
        choose: Function from the index of a problem, and the indices of the samples of a subset, to
            the position of the choice in the subset.
        n_problems: Number of problems.
        member_RM: Whether each subset contains each sample, from :func:`subsets_of_size`.
    """
    subsets = [np.flatnonzero(member_M).tolist() for member_M in member_RM]
    index_PR = np.full((n_problems, len(subsets)), _NO_CHOICE)
    for problem in range(n_problems):
        for row, subset in enumerate(subsets):
            position = choose(problem, subset)
            if position is not None:
                index_PR[problem, row] = subset[position]
    return _count_choices(index_PR, member_RM.shape[1])


def _count_choices(index_PR: np.ndarray, n_samples: int) -> np.ndarray:
    """Return the fraction of the subsets from which each sample is chosen."""
    fractions = [(index_PR == index).mean(axis=1) for index in range(n_samples)]
    return np.stack(fractions, axis=1)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Return the probability that k of n samples, without replacement, include a correct sample.

    This is the unbiased estimator of Chen et al. (2021).

    Raises:
        ValueError: if k is not between 1 and n.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} of {n} samples: expected k from 1 to {n}")
    return 1 - math.comb(n - correct, k) / math.comb(n, k)


def random_orders(n_samples: int, n_orders: int, seed: int) -> np.ndarray:
    """Return random orders of the indices of samples, one per row.

    Each M orders are the rotations of one random order, so every sample is among the first N of
    equally many orders.
    """
    n_bases = -(-n_orders // n_samples)
    base_orders = np.random.default_rng(seed).random((n_bases, n_samples)).argsort(axis=1)
    rotations = (np.arange(n_samples)[:, None] + np.arange(n_samples)) % n_samples
    return base_orders[:, rotations].reshape(-1, n_samples)[:n_orders]


def subsets_of_size(size: int, order_RM: np.ndarray) -> np.ndarray:
    """Return subsets of N samples, as a mask of shape (R, M).

    These are all subsets if there are not more than orders. Otherwise, each subset is the first N
    samples of an order.
    """
    n_orders, n_samples = order_RM.shape
    subsets = order_RM[:, :size]
    if math.comb(n_samples, size) <= n_orders:
        subsets = np.array(list(itertools.combinations(range(n_samples), size)))
    member_RM = np.zeros((len(subsets), n_samples), dtype=bool)
    np.put_along_axis(member_RM, subsets, True, axis=1)
    return member_RM


def _vote_subsets(
    classes: AnswerClasses, weight_M: np.ndarray, member_RM: np.ndarray
) -> np.ndarray:
    """Return the index that a weighted vote chooses from each subset, or ``_NO_CHOICE``.

    Args:
        classes: Classes of the answers of the samples.
        weight_M: Weight of each sample.
        member_RM: Whether each subset contains each sample.
    """
    n_classes = len(classes.agreement_CC)
    if not n_classes:
        return np.full(len(member_RM), _NO_CHOICE)
    is_class_MC = classes.class_M[:, None] == np.arange(n_classes)
    weights_MC = np.nan_to_num(weight_M, nan=0.0)[:, None] * is_class_MC
    is_present_RC = member_RM @ is_class_MC
    votes_RC = member_RM @ (weights_MC @ classes.agreement_CC)
    votes_RC = np.where(is_present_RC, votes_RC, -np.inf)
    most_votes_R1 = votes_RC.max(axis=1, keepdims=True)
    is_winner_RC = votes_RC >= most_votes_R1 - _TIE * np.abs(most_votes_R1)
    # The earliest sample of any tied answer is the first sample of the earliest one.
    is_candidate_RM = member_RM & ((is_winner_RC & is_present_RC) @ is_class_MC.T)
    return np.where(is_candidate_RM.any(axis=1), is_candidate_RM.argmax(axis=1), _NO_CHOICE)
