"""Compare intervals, tests and AUCs with published values, definitions and simulations."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binomtest, norm, t, ttest_1samp

from fsdpo_data.core.statistics import (
    Mean,
    auc,
    auc_interval,
    bootstrap_interval,
    holm,
    macro_interval,
    mcnemar,
    mean_difference,
    mean_rate,
    ranking_auc,
    wilson_interval,
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
    share = mean_rate([1] * right + [0] * (n - right))
    assert (share.value, share.n, share.clusters) == (right / n, n, None)
    assert share.ci95 == pytest.approx(interval, abs=1e-4)


def test_identical_problems_of_a_cluster_count_as_one() -> None:
    values = [1] * 500 + [0] * 500
    clustered = mean_rate(values, [i // 25 for i in range(1000)])
    assert clustered.clusters == 40
    assert clustered.ci95 == pytest.approx(mean_rate([1] * 20 + [0] * 20).ci95, abs=0.02)


def test_the_interval_of_all_wrong_clusters_depends_on_their_number() -> None:
    """The interval is that of 40 independent problems, with a t quantile: 8 % wider."""
    clustered = mean_rate([0] * 1000, [i // 25 for i in range(1000)]).ci95 or (0, 0)
    independent = mean_rate([0] * 40).ci95 or (0, 0)
    assert clustered[0] == independent[0] == 0
    assert 1 < clustered[1] / independent[1] < 1.09


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
        low, high = mean_rate(values, clusters).ci95 or (1, 0)
        hits += low <= mean <= high
        low, high = mean_rate(values).ci95 or (1, 0)
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
        low, high = mean_rate(values).ci95 or (1, 0)
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
    rates = [1 - math.comb(samples - c, k) / math.comb(samples, k) for c in range(samples + 1)]
    hits = 0
    for _ in range(300):
        correct = rng.binomial(samples, draw_probabilities(rng, problems))
        interval = mean_rate([rates[count] for count in correct]).ci95 or (1, 0)
        hits += interval[0] <= truth <= interval[1]
    assert hits / 300 >= 0.93


def test_macro_average_covers_the_truth() -> None:
    rng = random.Random(7)
    rounds = 600
    hits = 0
    truth = [0.02, 0.5, 0.9]
    for _ in range(rounds):
        shares = [sum(rng.random() < p for _ in range(150)) for p in truth]
        intervals = [wilson_interval([1] * n + [0] * (150 - n)) for n in shares]
        low, high = macro_interval([n / 150 for n in shares], list(filter(None, intervals)))
        hits += low <= sum(truth) / 3 <= high
    assert 0.93 <= hits / rounds <= 0.98


def test_a_mean_difference_has_the_interval_of_student() -> None:
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


def test_the_interval_of_a_mean_is_near_students_where_that_is_fine() -> None:
    """The imagined group at 0 or 1 makes the interval of 100 problems at most 6 % wider."""
    values = [0.3, 0.4, 0.5, 0.6, 0.7] * 20  # mean 0.5, s = 0.1421, t(99) = 1.9842
    low, high = wilson_interval(values) or (0, 0)
    assert (low + high) / 2 == pytest.approx(0.5, abs=1e-4)
    assert 1 <= (high - low) / (2 * 0.0282) < 1.06
    assert wilson_interval([]) is None


def test_one_value_of_0_or_1_per_cluster_is_an_independent_trial() -> None:
    values = [1] * 30 + [0] * 70
    assert mean_rate(values, range(100)).ci95 == mean_rate(values).ci95


def test_samples_in_clusters_and_their_means_have_one_interval() -> None:
    """Accuracy over all samples, and avg@k over problems."""
    correct = [8, 7, 8, 0, 3, 8, 5]
    samples = [int(index < n) for n in correct for index in range(8)]
    by_problem = mean_rate([n / 8 for n in correct])
    by_sample = mean_rate(samples, [index // 8 for index in range(56)])
    assert by_problem.value == by_sample.value
    assert by_problem.ci95 == pytest.approx(by_sample.ci95)
    assert wilson_interval(correct, [8] * 7) == pytest.approx(by_sample.ci95)


def test_a_rate_without_values_is_none_and_counts_are_refused() -> None:
    assert mean_rate([]) == Mean(None, 0, None)
    with pytest.raises(ValueError, match="divide counts by their maximum"):
        mean_rate([3, 1])


def test_benchmarks_that_share_problems_do_not_narrow_the_interval_of_their_mean() -> None:
    """The second benchmark is a part of the first one, as MATH-500 is of MATH."""
    rng = random.Random(3)
    rounds, n_all, n_part = 600, 200, 100
    clusters = [range(n_all), range(n_part)]
    hits = {True: 0, False: 0}
    for _ in range(rounds):
        values = [int(rng.random() < 0.4) for _ in range(n_all)]
        parts = [values, values[:n_part]]
        intervals = [interval for part in parts if (interval := wilson_interval(part))]
        means = [sum(part) / len(part) for part in parts]
        for is_shared in hits:
            low, high = macro_interval(means, intervals, clusters if is_shared else None)
            hits[is_shared] += low <= 0.4 <= high
    assert hits[False] / rounds < 0.92 and 0.93 <= hits[True] / rounds <= 0.98
    mean, interval = means[0], intervals[0]
    equal = macro_interval([mean] * 2, [interval] * 2, [range(n_all)] * 2)
    assert equal == pytest.approx(interval)
    without_common = macro_interval([mean] * 2, [interval] * 2, [range(5), range(5, 9)])
    assert without_common == macro_interval([mean] * 2, [interval] * 2)


def test_the_interval_of_the_mean_of_one_benchmark_is_its_own() -> None:
    interval = wilson_interval([1] * 15 + [0] * 133)
    assert interval and macro_interval([15 / 148], [interval]) == pytest.approx(interval)


def test_intervals_of_rare_differences_cover_the_truth() -> None:
    """Of 500 problems, 5 % are won and 3 % are lost."""
    rng = np.random.default_rng(8)
    hits = 0
    for _ in range(600):
        low, high = mean_difference(rng.choice([1, -1, 0], 500, p=[0.05, 0.03, 0.92])).ci95
        hits += low <= 0.02 <= high
    assert 0.92 <= hits / 600 <= 0.985


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"),
    # Fagerland, Lydersen & Laake (2013), table 1: airway hyper-responsiveness, exact conditional;
    # then binomial tails by hand.
    [(1, 7, 0.0703125), (0, 5, 0.0625), (4, 4, 1.0), (0, 0, 1.0), (10, 2, 0.03857421875)],
)
def test_mcnemar_against_known_values(only_a: int, only_b: int, p: float) -> None:
    assert mcnemar([-1] * only_a + [1] * only_b + [0] * 9) == pytest.approx(p)
    assert mcnemar([1] * only_a + [-1] * only_b) == pytest.approx(p)


def test_mcnemar_is_exact_for_thousands_of_problems() -> None:
    assert mcnemar([-1] * 2400 + [1] * 2600) == pytest.approx(binomtest(2400, 5000).pvalue)


def test_mcnemar_of_clusters_enumerates_all_sign_patterns() -> None:
    differences = [3, -1, 2, 2, 0, -4, 1]
    patterns = itertools.product((1, -1), repeat=len(differences))
    sums = [abs(sum(s * d for s, d in zip(signs, differences, strict=True))) for signs in patterns]
    expected = sum(total >= abs(sum(differences)) for total in sums) / len(sums)
    assert mcnemar(differences) == pytest.approx(expected)
    assert mcnemar([20, 20, 20]) == pytest.approx(0.25)  # 60 single problems: below 1e-15


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.5]) == [1.0, 1.0] and holm([]) == []


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
    assert ranking.value == 1 and ranking.n == 2
    assert auc(scores, right) == pytest.approx(0.5)
    assert ranking_auc(["a"], [0.5], [True]).value is None


def test_the_interval_of_a_ranking_is_over_clusters_of_problems() -> None:
    problems = ["easy", "easy", "hard", "hard", "solved", "other", "other"]
    scores = [0.9, 0.8, 0.1, 0.2, 0.0, 0.9, 0.1]
    right = [True, False, True, False, True, True, False]
    clusters = ["x", "x", "x", "x", "x", "y", "y"]
    assert ranking_auc(problems, scores, right, clusters) == mean_rate([1, 0, 1], ["x", "x", "y"])


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
    intervals = [auc_interval(*sample_problems(random.Random(seed), 30)) for seed in range(1, 101)]
    assert all(0 <= low < high <= 1 for low, high in filter(None, intervals))
    n_covering = sum(low <= true <= high for low, high in filter(None, intervals)) / len(intervals)
    assert 0.91 <= n_covering <= 0.99


def test_a_perfect_auc_and_an_auc_of_one_problem_have_no_bootstrap_interval() -> None:
    assert auc_interval([1, 1, 2, 2], [0.9, 0.1, 0.8, 0.2], [True, False] * 2) is None
    assert auc_interval([1, 1, 1], [0.9, 0.1, 0.95], [True, False, False]) is None
    assert auc_interval([1, 2], [0.9, 0.1], [True, True]) is None


def test_the_resampled_aucs_are_aucs_of_repeated_problems() -> None:
    """With ties, and compared with a copy of each problem per draw."""
    rng = np.random.default_rng(0)
    problems = np.repeat(np.arange(4), 5)
    scores = rng.integers(0, 4, 20) / 4
    labels = rng.random(20) < 0.5
    draws = []
    for counts in np.random.default_rng(0).multinomial(4, [0.25] * 4, 2_000):
        items = np.repeat(np.arange(20), counts[problems])
        area = auc(scores[items], labels[items])
        draws += [] if area is None else [area]
    tail = norm.cdf(-math.sqrt(4 / 3) * t.ppf(0.975, 3))
    expected = np.quantile(draws, [tail, 1 - tail])
    assert auc_interval(problems.tolist(), scores, labels) == pytest.approx(expected)


def test_the_bootstrap_interval_of_a_mean_is_students_and_repeatable() -> None:
    values = np.random.default_rng(0).normal(size=25)

    def means(counts_DG: np.ndarray) -> np.ndarray:
        return counts_DG @ values / 25

    interval = bootstrap_interval(means, 25)
    expected = ttest_1samp(values, 0).confidence_interval(0.95)
    assert interval == pytest.approx(tuple(expected), abs=0.05)
    assert interval == bootstrap_interval(means, 25) != bootstrap_interval(means, 25, seed=1)


def test_each_stratum_of_the_bootstrap_keeps_its_size() -> None:
    def check_sizes(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        assert (first.sum(axis=1) == 3).all() and (second.sum(axis=1) == 5).all()
        return first[:, 0] / 3 - second[:, 0] / 5

    assert bootstrap_interval(check_sizes, 3, 5) is not None
    assert bootstrap_interval(check_sizes, 1, 5) is None
    assert bootstrap_interval(lambda counts: np.zeros(len(counts)), 9) is None
    assert bootstrap_interval(lambda counts: np.full(len(counts), np.nan), 9) is None


def test_a_mean_difference_needs_a_difference() -> None:
    with pytest.raises(ValueError, match="at least one difference"):
        mean_difference([])
