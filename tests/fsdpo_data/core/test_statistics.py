"""Tests of AUCs and intervals against their definitions."""

from __future__ import annotations

import random

import pytest

from fsdpo_data.core.statistics import auc, auc_interval, mean_interval, ranking_auc


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
    assert auc([float("nan"), 0.5, 0.2], [True, False, True]) is None
    assert auc_interval([1, 2, 2], [0.5, float("nan"), 0.2], [True, False, True]) is None
    assert auc([float("inf"), 0.5], [True, False]) == 1


def test_ranking_is_within_problems_only() -> None:
    problems = ["easy", "easy", "hard", "hard", "solved"]
    scores = [0.9, 0.8, 0.2, 0.1, 0.0]
    right = [True, False, True, False, True]
    ranking = ranking_auc(problems, scores, right)
    assert ranking.value == 1 and ranking.problems == 2
    assert auc(scores, right) == pytest.approx(0.5)
    assert ranking_auc(["a"], [0.5], [True]).value is None


def test_the_interval_of_an_auc_is_one_of_areas() -> None:
    """A normal interval of these values would be 0.889 [0.765, 1.012]."""
    areas = [1.0] * 7 + [0.5, 0.5]
    problems, scores, right = [], [], []
    for problem, area in enumerate(areas):
        problems += [problem, problem]
        scores += [0.5, 0.1 if area == 1 else 0.5]
        right += [True, False]
    ranking = ranking_auc(problems, scores, right)
    assert ranking.value == pytest.approx(8 / 9) and ranking.ci95 is not None
    assert 0.5 < ranking.ci95[0] < 8 / 9 < ranking.ci95[1] < 1


def test_an_auc_of_one_on_few_problems_is_not_certain() -> None:
    few, many = (
        ranking_auc([i // 2 for i in range(2 * n)], [0.9, 0.1] * n, [True, False] * n).ci95
        for n in (3, 300)
    )
    assert few and many and few[0] < 0.5 and many[0] > 0.98 and few[1] == many[1] == 1


def test_the_interval_of_a_mean_is_near_students_where_that_is_fine() -> None:
    """The imagined group at 0 or 1 makes the interval of 100 problems at most 6 % wider."""
    values = [0.3, 0.4, 0.5, 0.6, 0.7] * 20  # mean 0.5, s = 0.1421, t(99) = 1.9842
    low, high = mean_interval([(value, 1) for value in values], 50) or (0, 0)
    assert (low + high) / 2 == pytest.approx(0.5, abs=1e-4)
    assert 1 <= (high - low) / (2 * 0.0282) < 1.06
    assert mean_interval([]) is None


def test_the_interval_of_a_pooled_auc_covers_it_though_steps_of_a_problem_are_alike() -> None:
    def sample_problems(
        rng: random.Random, problems: int
    ) -> tuple[list[int], list[float], list[bool]]:
        rows = []
        for problem in range(problems):
            ease = rng.gauss(0, 1)
            for _ in range(6):
                good = rng.random() < 0.3 + 0.4 * (ease > 0)
                rows.append((problem, ease + rng.gauss(0.8 * good, 1), good))
        problem_ids, scores, right = map(list, zip(*rows, strict=True))
        return problem_ids, scores, right

    true = auc(*sample_problems(random.Random(0), 5000)[1:])
    intervals = [auc_interval(*sample_problems(random.Random(seed), 30)) for seed in range(1, 301)]
    assert all(0 <= low < high <= 1 for low, high in filter(None, intervals))
    n_covering = sum(low <= true <= high for low, high in filter(None, intervals)) / len(intervals)
    assert 0.91 <= n_covering <= 0.99


def test_a_perfect_auc_on_few_problems_has_an_interval_and_one_problem_has_none() -> None:
    low, high = auc_interval([1, 1, 2, 2], [0.9, 0.1, 0.8, 0.2], [True, False] * 2) or (1, 1)
    assert low < 0.6 and high == 1
    assert auc_interval([1, 1], [0.9, 0.1], [True, False]) is None
    assert auc_interval([1, 2], [0.9, 0.1], [True, True]) is None
