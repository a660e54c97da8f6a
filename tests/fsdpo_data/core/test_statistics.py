"""Areas under curves against their definition."""

from __future__ import annotations

import random

import pytest

from fsdpo_data.core.statistics import auc, mean_interval, ranking_auc


def test_auc_is_the_share_of_ordered_pairs() -> None:
    rng = random.Random(0)
    scores = [rng.randrange(10) / 10 for _ in range(200)]
    right = [rng.random() < score for score in scores]
    pairs = [
        (a > b) + (a == b) / 2
        for a, good in zip(scores, right, strict=True)
        for b, other in zip(scores, right, strict=True)
        if good and not other
    ]
    assert auc(scores, right) == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)


def test_auc_of_one_kind_is_undefined() -> None:
    assert auc([0.1, 0.2], [True, True]) is None and auc([], []) is None
    assert auc([0.5, 0.5], [True, False]) == 0.5


def test_ranking_is_within_problems_only() -> None:
    problems = ["easy", "easy", "hard", "hard", "solved"]
    scores = [0.9, 0.8, 0.2, 0.1, 0.0]
    right = [True, False, True, False, True]
    ranking = ranking_auc(problems, scores, right)
    assert ranking.value == 1 and ranking.problems == 2 and ranking.ci95 == (1, 1)
    assert auc(scores, right) == pytest.approx(0.5)
    assert ranking_auc(["a"], [0.5], [True]).value is None


def test_mean_interval_against_a_worked_example() -> None:
    mean, interval = mean_interval([1.0, 2.0, 3.0, 4.0])
    assert mean == 2.5 and interval == pytest.approx((2.5 - 1.2652, 2.5 + 1.2652), abs=1e-3)
    assert mean_interval([1.0]) == (1.0, None)
