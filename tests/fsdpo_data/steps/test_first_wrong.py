"""The first wrong step of a solution, and thresholds of scores."""

from __future__ import annotations

import pytest

from fsdpo_data.steps.first_error import (
    MAX_CANDIDATES,
    NO_ERROR,
    find_first_below,
    find_first_wrong,
    harmonic_mean,
    threshold_candidates,
)


def test_the_first_wrong_step_is_the_error() -> None:
    assert find_first_wrong([False, True, True]) == 1
    assert find_first_wrong([False]) == find_first_wrong([]) == NO_ERROR == -1


def test_the_first_step_below_the_threshold_is_the_error() -> None:
    assert find_first_below([0.9, 0.4, 0.1], 0.5) == 1
    assert find_first_below([0.9, 0.5], 0.5) == NO_ERROR


def test_the_harmonic_mean_of_zeros_is_zero() -> None:
    assert harmonic_mean(0.5, 1.0) == pytest.approx(2 / 3)
    assert harmonic_mean(0.0, 0.0) == harmonic_mean(0.0, 1.0) == 0


def test_thresholds_are_quantiles_of_all_scores() -> None:
    assert threshold_candidates([[0.3, 0.1], None, [0.2, 0.1]]) == [0.1, 0.2, 0.3]
    scores = [[index / 1000] for index in range(1000)]
    candidates = threshold_candidates(scores)
    assert len(candidates) == MAX_CANDIDATES and candidates[:2] == [0.0, 0.005]
    assert threshold_candidates([None]) == [0.5]
