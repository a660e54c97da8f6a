"""Compare the statistics with published values, definitions and simulations."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from fsdpo_bench.intervals import (
    Proportion,
    clustered_mcnemar,
    macro_average,
    mcnemar,
    mean_difference,
    paired_interval,
    pass_at_k,
    proportion,
)


@pytest.mark.parametrize(
    ("right", "n", "interval"),
    # Newcombe (1998), table I, method 3.
    [
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ],
)
def test_share_of_independent_problems_has_the_published_wilson_interval(
    right: int, n: int, interval: tuple[float, float]
) -> None:
    share = proportion([1] * right + [0] * (n - right))
    assert (share.total, share.n, share.clusters) == (right, n, None)
    assert share.ci95 == pytest.approx(interval, abs=1e-4)


def test_the_share_of_no_problems_is_none() -> None:
    assert proportion([]) == Proportion(None, 0, 0, None)


def test_clusters_of_size_one_give_nearly_the_wilson_interval() -> None:
    values = [1] * 300 + [0] * 700
    plain = proportion(values).ci95
    clustered = proportion(values, range(1000)).ci95
    assert plain and clustered
    assert clustered == pytest.approx(plain, abs=1e-3)


def test_identical_problems_of_a_cluster_count_as_one() -> None:
    values = [1] * 500 + [0] * 500
    clustered = proportion(values, [i // 25 for i in range(1000)])
    assert clustered.clusters == 40
    assert clustered.ci95 == pytest.approx(proportion([1] * 20 + [0] * 20).ci95, abs=0.02)


def test_the_interval_of_all_wrong_clusters_depends_on_their_number() -> None:
    """The interval is that of 40 independent problems, with a t quantile: 8 % wider."""
    clustered = proportion([0] * 1000, [i // 25 for i in range(1000)]).ci95 or (0, 0)
    independent = proportion([0] * 40).ci95 or (0, 0)
    assert clustered[0] == independent[0] == 0
    assert 1 < clustered[1] / independent[1] < 1.09


def test_the_interval_of_sample_shares_is_not_narrower_than_that_of_samples() -> None:
    sample_share = proportion([0.5] * 10, trials=8)
    assert sample_share.ci95 and proportion([1] * 40 + [0] * 40).ci95
    assert sample_share.ci95[0] < proportion([1] * 40 + [0] * 40).ci95[0] + 0.001


def _clustered_draw(
    rng: random.Random, mean: float, correlation: float
) -> tuple[list[int], list[int]]:
    """Draw 1,000 problems in 40 clusters of uneven size, with a correlation within clusters."""
    a = mean * (1 - correlation) / correlation
    b = (1 - mean) * (1 - correlation) / correlation
    chances = [rng.betavariate(a, b) for _ in range(40)]
    clusters = [min(39, int(40 * rng.random() ** 1.3)) for _ in range(1000)]
    return [int(rng.random() < chances[cluster]) for cluster in clusters], clusters


@pytest.mark.parametrize(("mean", "correlation"), [(0.5, 0.3), (0.85, 0.2), (0.85, 0.6)])
def test_clustered_interval_covers_the_truth_where_wilson_does_not(
    mean: float, correlation: float
) -> None:
    rng = random.Random(5)
    rounds = 600
    hits = 0
    naive_hits = 0
    for _ in range(rounds):
        values, clusters = _clustered_draw(rng, mean, correlation)
        low, high = proportion(values, clusters).ci95 or (1, 0)
        hits += low <= mean <= high
        low, high = proportion(values).ci95 or (1, 0)
        naive_hits += low <= mean <= high
    assert 0.92 <= hits / rounds <= 0.985
    assert naive_hits / rounds < 0.65


@pytest.mark.parametrize("mean", [0.1, 0.5, 0.9])
def test_interval_of_sample_means_covers_the_truth(mean: float) -> None:
    rng = random.Random(6)
    rounds = 600
    hits = 0
    for _ in range(rounds):
        chances = (rng.betavariate(2 * mean, 2 * (1 - mean)) for _ in range(100))
        values = [sum(rng.random() < p for _ in range(8)) / 8 for p in chances]
        low, high = proportion(values, trials=8).ci95 or (1, 0)
        hits += low <= mean <= high
    assert 0.92 <= hits / rounds <= 0.985


@pytest.mark.parametrize(
    ("problems", "samples", "k"), [(30, 64, 8), (100, 16, 8), (500, 8, 4), (500, 64, 32)]
)
@pytest.mark.parametrize(
    "draw_probabilities",
    [
        lambda rng, n: rng.beta(2, 0.5, n),
        lambda rng, n: rng.beta(5, 1, n),
        lambda rng, n: np.where(rng.random(n) < 0.03, rng.beta(0.3, 10, n), rng.beta(5, 1, n)),
    ],
    ids=["beta(2, 0.5)", "beta(5, 1)", "3 % hard"],
)
def test_interval_of_pass_at_k_covers_the_truth_near_one(
    problems: int,
    samples: int,
    k: int,
    draw_probabilities: Callable[[np.random.Generator, int], np.ndarray],
) -> None:
    """Most draws contain few of the problems that decide the mean; coverage was 55 to 79 %."""
    rng = np.random.default_rng(1)
    truth = float(np.mean(1 - (1 - draw_probabilities(rng, 400_000)) ** k))
    rates = [pass_at_k(samples, correct, k) for correct in range(samples + 1)]
    hits = 0
    for _ in range(300):
        correct = rng.binomial(samples, draw_probabilities(rng, problems))
        interval = proportion([rates[count] for count in correct], trials=samples).ci95 or (1, 0)
        hits += interval[0] <= truth <= interval[1]
    assert hits / 300 >= 0.93


def test_macro_average_of_one_share_is_that_share() -> None:
    share = proportion([1] * 15 + [0] * 133)
    average = macro_average([share, Proportion(None, 0, 0, None)])
    assert average.value == share.value
    assert average.ci95 == pytest.approx(share.ci95)


def test_macro_average_covers_the_truth() -> None:
    rng = random.Random(7)
    rounds = 600
    hits = 0
    truth = [0.02, 0.5, 0.9]
    for _ in range(rounds):
        shares = [proportion([int(rng.random() < p) for _ in range(150)]) for p in truth]
        low, high = macro_average(shares).ci95 or (1, 0)
        hits += low <= sum(truth) / 3 <= high
    assert 0.93 <= hits / rounds <= 0.98


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


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"),
    # Fagerland, Lydersen & Laake (2013), table 1: airway hyper-responsiveness, exact conditional;
    # then binomial tails by hand.
    [(1, 7, 0.0703125), (0, 5, 0.0625), (4, 4, 1.0), (0, 0, 1.0), (10, 2, 0.03857421875)],
)
def test_mcnemar_against_known_values(only_a: int, only_b: int, p: float) -> None:
    assert mcnemar(only_a, only_b) == pytest.approx(p)
    assert mcnemar(only_b, only_a) == pytest.approx(p)


def test_mcnemar_does_not_overflow_for_thousands_of_problems() -> None:
    assert 0 < mcnemar(2400, 2600) < 0.01


def test_clustered_mcnemar_of_single_problems_is_mcnemar() -> None:
    for a, b in [(1, 7), (10, 2), (3, 3), (0, 0)]:
        assert clustered_mcnemar([-1] * a + [1] * b + [0] * 9) == pytest.approx(mcnemar(a, b))


def test_clustered_mcnemar_enumerates_all_sign_patterns() -> None:
    differences = [3, -1, 2, 2, 0, -4, 1]
    patterns = itertools.product((1, -1), repeat=len(differences))
    sums = [abs(sum(s * d for s, d in zip(signs, differences, strict=True))) for signs in patterns]
    expected = sum(total >= abs(sum(differences)) for total in sums) / len(sums)
    assert clustered_mcnemar(differences) == pytest.approx(expected)


def test_clustered_problems_have_a_larger_p_value() -> None:
    assert clustered_mcnemar([20, 20, 20]) == pytest.approx(0.25)
    assert mcnemar(0, 60) < 1e-15


def _interval_of_normal_theory(values: Sequence[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values) ** 2)
    return mean - 1.959964 * spread, mean + 1.959964 * spread


def test_paired_interval_is_near_normal_theory() -> None:
    values = [1] * 160 + [-1] * 90 + [0] * 1000
    assert paired_interval(values) == pytest.approx(_interval_of_normal_theory(values), abs=0.002)


@pytest.mark.parametrize(("won", "lost", "n"), [(1, 12, 44), (5, 2, 60), (9, 0, 30), (40, 38, 99)])
def test_paired_interval_ends_where_the_score_test_rejects(won: int, lost: int, n: int) -> None:
    """Compute the statistic by its definition, with a search for the restricted likelihood."""
    interval = paired_interval([1] * won + [-1] * lost + [0] * (n - won - lost))
    for bound, sign in zip(interval, (1, -1), strict=True):
        shares = (max(0.0, -bound) + (1 - abs(bound)) / 2 * i / 200_000 for i in range(1, 200_000))
        best = max(shares, key=lambda q: _likelihood(won, lost, n, q, q + bound))
        spread = math.sqrt((2 * best + bound - bound**2) / n)
        assert ((won - lost) / n - bound) / spread == pytest.approx(sign * 1.959964, abs=2e-3)


def _likelihood(won: int, lost: int, n: int, share_lost: float, share_won: float) -> float:
    parts = ((won, share_won), (lost, share_lost), (n - won - lost, 1 - share_won - share_lost))
    return math.fsum(count * math.log(max(share, 1e-300)) for count, share in parts)


def test_paired_interval_of_no_difference_is_the_closed_form() -> None:
    square = 1.959964**2
    assert paired_interval([0] * 20)[1] == pytest.approx(square / (20 + square))


def test_the_interval_without_differences_narrows_with_more_problems() -> None:
    low, high = paired_interval([0] * 20)
    lower, higher = paired_interval([0] * 2000)
    assert low == pytest.approx(-high) and low < -0.15 < -0.003 < lower < 0 < higher
    assert paired_interval([1] * 10)[1] == pytest.approx(1)
    low, high = paired_interval([0] * 1000, [i // 25 for i in range(1000)])
    assert (low, high) == pytest.approx(paired_interval([0] * 40))


def test_paired_interval_is_wider_for_clusters() -> None:
    values = [1] * 50 + [-1] * 50
    wide = paired_interval(values, [i // 10 for i in range(100)])
    narrow = paired_interval(values)
    assert wide[1] - wide[0] > 2.5 * (narrow[1] - narrow[0])


@pytest.mark.parametrize("n", [30, 272])
def test_paired_interval_covers_the_truth(n: int) -> None:
    rng = random.Random(8)
    rounds = 600
    hits = 0
    for _ in range(rounds):
        values = [rng.choices((1, -1, 0), (0.15, 0.1, 0.75))[0] for _ in range(n)]
        low, high = paired_interval(values)
        hits += low <= 0.05 <= high
    assert 0.91 <= hits / rounds <= 0.985


def test_a_mean_difference_has_the_interval_of_student() -> None:
    from scipy.stats import ttest_1samp

    rng = random.Random(0)
    differences = [rng.choice([-1, 0, 0, 0, 1]) * rng.random() for _ in range(40)]
    mean = mean_difference(differences)
    expected = ttest_1samp(differences, 0)
    assert mean.ci95 == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert mean.p == pytest.approx(expected.pvalue)
    # Clusters of equal size: the test of their means.
    clusters = [index // 4 for index in range(40)]
    means = [sum(differences[start : start + 4]) / 4 for start in range(0, 40, 4)]
    expected = ttest_1samp(means, 0)
    mean = mean_difference(differences, clusters)
    assert mean.ci95 == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert mean.p == pytest.approx(expected.pvalue) and mean.clusters == 10


@pytest.mark.parametrize("difference", [0.0, 0.1, 1.0])
def test_equal_differences_have_an_interval_with_a_width(difference: float) -> None:
    low, high = mean_difference([difference] * 30).ci95
    assert -1 <= low < difference <= high <= 1
    single = mean_difference([difference])
    assert single.ci95 == (-1.0, 1.0)
