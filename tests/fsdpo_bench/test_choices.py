"""Choices among samples, and their accuracy at any N, compared with all subsets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from fsdpo_bench.decoders.answer_classes import NO_ANSWER
from fsdpo_bench.decoders.choices import (
    best_of_n,
    estimate_best_of_n,
    estimate_vote,
    pass_at_k,
    random_orders,
    subsets_of_size,
    vote,
    weighted_vote,
)

SAMPLES = 7
SIZES = range(1, SAMPLES + 1)
RNG = np.random.default_rng(0)
#: Few classes and few rewards, so there are many ties; some answers and rewards are missing.
CLASSES = RNG.integers(NO_ANSWER, 3, (20, SAMPLES))
REWARDS = RNG.choice([0.1, 0.2, 0.3, 0.5, math.nan], (20, SAMPLES))
CORRECT = RNG.random((20, SAMPLES)) < 0.5
ALL_SUBSETS = math.comb(SAMPLES, SAMPLES // 2)


def accuracies_of_subsets(
    choose: Callable[[int, list[int]], int | None],
) -> list[list[float]]:
    """Return the accuracy of a choice for each problem and size, over all subsets in order."""
    accuracies = []
    for problem in range(len(CORRECT)):
        row = []
        for size in SIZES:
            subsets = list(map(list, itertools.combinations(range(SAMPLES), size)))
            indices = [choose(problem, subset) for subset in subsets]
            hits = [
                index is not None and CORRECT[problem, subset[index]]
                for subset, index in zip(subsets, indices, strict=True)
            ]
            row.append(sum(hits) / len(hits))
        accuracies.append(row)
    return accuracies


def test_best_of_n_is_averaged_over_all_subsets() -> None:
    expected = accuracies_of_subsets(lambda problem, subset: best_of_n(REWARDS[problem, subset]))
    assert estimate_best_of_n(REWARDS, CORRECT, SIZES) == pytest.approx(np.array(expected))


def test_an_accuracy_is_at_most_1() -> None:
    sizes = range(1, 65)
    estimates = estimate_best_of_n(np.zeros((1, 64)), np.ones((1, 64), dtype=bool), sizes)
    assert estimates.max() == 1 and estimates == pytest.approx(np.ones((1, 64)))


@pytest.mark.parametrize("is_weighted", [False, True])
def test_votes_are_averaged_over_all_subsets_if_there_are_few(is_weighted: bool) -> None:
    def choose(problem: int, subset: list[int]) -> int | None:
        if is_weighted:
            return weighted_vote(CLASSES[problem, subset], REWARDS[problem, subset])
        return vote(CLASSES[problem, subset])

    weights = REWARDS if is_weighted else None
    estimates = estimate_vote(CLASSES, CORRECT, SIZES, weights, max_subsets=ALL_SUBSETS)
    assert estimates == pytest.approx(np.array(accuracies_of_subsets(choose)))


def test_random_subsets_estimate_the_vote_and_all_samples_give_the_decoders_choice() -> None:
    exact = estimate_vote(CLASSES, CORRECT, SIZES, max_subsets=ALL_SUBSETS)
    estimates = estimate_vote(CLASSES, CORRECT, SIZES, max_subsets=14)
    assert (estimates[:, [0, 5, 6]] == exact[:, [0, 5, 6]]).all()  # 7, 7 and 1 subsets
    assert (estimates != exact).any()
    assert np.abs(estimates - exact).mean() < 0.1
    decoded = [vote(classes) for classes in CLASSES]
    hits = [i is not None and correct[i] for i, correct in zip(decoded, CORRECT, strict=True)]
    assert estimates[:, -1].tolist() == hits


def test_ties_and_missing_answers() -> None:
    assert vote([1, 0, 0, 1]) == 0
    assert vote([NO_ANSWER, 4, 2, 2]) == 2
    assert vote([NO_ANSWER, NO_ANSWER]) is None and vote([]) is None
    # The sums differ only by rounding, so the class with the earliest sample wins.
    assert weighted_vote([0, 1, 1, 1], [0.3, 0.1, 0.1, 0.1]) == 0
    assert weighted_vote([0, 1], [None, 0.1]) == 1 and weighted_vote([0, 1], [None, None]) == 0
    assert best_of_n([None, 0.2, 0.5, 0.5]) == 2 and best_of_n([None, None]) == 0
    assert best_of_n([None, -math.inf]) == 0


def test_every_sample_is_in_equally_many_random_subsets() -> None:
    orders = random_orders(SAMPLES, 2 * SAMPLES, seed=0)
    assert (np.sort(orders, axis=1) == np.arange(SAMPLES)).all()
    for size in SIZES:
        counts = subsets_of_size(size, orders).sum(axis=0)
        assert len(set(counts.tolist())) == 1
    assert random_orders(SAMPLES, 5, seed=0).shape == (5, SAMPLES)


@pytest.mark.parametrize(("n", "correct"), [(1, 0), (5, 2), (8, 8), (7, 1)])
def test_pass_at_k_is_the_mean_over_all_draws(n: int, correct: int) -> None:
    right = [i < correct for i in range(n)]
    for k in range(1, n + 1):
        draws = [any(draw) for draw in itertools.combinations(right, k)]
        assert pass_at_k(n, correct, k) == pytest.approx(sum(draws) / len(draws))


def test_pass_at_k_equals_the_published_formula() -> None:
    # Chen et al. (2021), figure 3: 1 - prod(1 - k / i for i in n - c + 1 … n).
    for n, correct, k in [(200, 7, 100), (100, 50, 10), (15, 3, 5)]:
        product = math.prod(1 - k / i for i in range(n - correct + 1, n + 1))
        assert pass_at_k(n, correct, k) == pytest.approx(1 - product)
    with pytest.raises(ValueError, match="from 1 to 4"):
        pass_at_k(4, 1, 5)
