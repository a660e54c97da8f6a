"""Choices among samples: ties, missing answers, random subsets, and pass@k."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from fsdpo_bench.decoders.answer_classes import NO_ANSWER, AnswerClasses
from fsdpo_bench.decoders.estimators import (
    best_of_n,
    distribute_best_of_n,
    distribute_vote,
    expected_values,
    pass_at_k,
    random_orders,
    subsets_of_size,
    vote,
    weighted_vote,
)

SAMPLES = 7
SIZES = range(1, SAMPLES + 1)


def separate(class_M: Sequence[int] | np.ndarray) -> AnswerClasses:
    """Return classes of which no two agree."""
    classes = np.array(class_M, dtype=int)
    return AnswerClasses(classes, np.eye(classes.max(initial=NO_ANSWER) + 1, dtype=bool))


@pytest.mark.parametrize("n_samples", [4, 7, 64])
def test_an_accuracy_without_a_wrong_choice_is_exactly_1(n_samples: int) -> None:
    """Intervals and tests of values that are all 0 or 1 differ from those of other values."""
    is_correct = np.ones((1, n_samples), dtype=bool)
    classes_P = [separate([0] * n_samples)]
    for size in range(1, n_samples + 1):
        member_RM = subsets_of_size(size, random_orders(n_samples, 320, seed=0))
        best = distribute_best_of_n(np.arange(n_samples)[None] / n_samples, size)
        voted = distribute_vote(classes_P, member_RM, np.arange(n_samples)[None] / n_samples)
        for chosen_PM in (best, voted):
            assert expected_values(chosen_PM, is_correct).tolist() == [1]
            assert expected_values(chosen_PM, ~is_correct).tolist() == [0]


def test_a_distribution_adds_up_to_1_where_every_subset_has_an_answer() -> None:
    rng = np.random.default_rng(0)
    class_PM = rng.integers(NO_ANSWER, 2, (20, SAMPLES))
    class_PM[0] = NO_ANSWER
    class_PM[1] = 0
    member_RM = subsets_of_size(2, random_orders(SAMPLES, 14, seed=0))
    chosen_PM = distribute_vote([separate(class_M) for class_M in class_PM], member_RM)
    has_answer_PR = (class_PM != NO_ANSWER) @ member_RM.T
    assert chosen_PM.sum(axis=1) == pytest.approx(has_answer_PR.mean(axis=1))
    assert chosen_PM[0].sum() == 0 and chosen_PM[1].sum() == pytest.approx(1)


def test_ties_and_missing_answers() -> None:
    assert vote(separate([1, 0, 0, 1])) == 0
    assert vote(separate([NO_ANSWER, 4, 2, 2])) == 2
    assert vote(separate([NO_ANSWER, NO_ANSWER])) is None and vote(separate([])) is None
    # The sums differ only by rounding, so the class with the earliest sample wins.
    assert weighted_vote(separate([0, 1, 1, 1]), [0.3, 0.1, 0.1, 0.1]) == 0
    assert weighted_vote(separate([0, 1, 1, 1]), [3e-12, 1e-12, 1e-12, 1e-12]) == 0
    assert (
        weighted_vote(separate([0, 1]), [None, 0.1]) == 1
        and weighted_vote(separate([0, 1]), [None, None]) == 0
    )
    assert best_of_n([None, 0.2, 0.5, 0.5]) == 2 and best_of_n([None, None]) == 0
    assert best_of_n([None, -math.inf]) == 0


def test_the_products_of_many_step_rewards_weigh_votes() -> None:
    """A product of 250 rewards of 0.9 is 4e-12: the larger sum still wins."""
    rewards = [[0.86] * 250, [0.9] * 250, [0.88] * 250, [0.9] * 250]
    weights = [math.prod(step_rewards) for step_rewards in rewards]
    assert weighted_vote(separate([0, 1, 0, 1]), weights) == 1
    chosen_PM = distribute_vote(
        [separate([0, 1, 0, 1])],
        subsets_of_size(2, random_orders(4, 8, seed=0)),
        np.array([weights]),
    )
    # Only the subset of both samples of the first class chooses from it.
    assert chosen_PM[0] == pytest.approx([1 / 6, 3 / 6, 0, 2 / 6])


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
