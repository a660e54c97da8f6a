"""Statistics with confidence intervals: proportions, pass@k and paired differences.

All functions take plain numbers, and are deterministic. Problems that share a base problem form a
cluster. Clusters are then the independent units.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from fsdpo_data.core.statistics import Z95, effective_sample_size, mean_interval, wilson_interval

Interval = tuple[float, float]  #: Lower and upper bound.

_BISECTION_STEPS = 50
_EQUAL_MEANS = 1e-12  #: Deviation per problem below which groups have the same mean.


@dataclass(frozen=True, slots=True)
class Proportion:
    """A mean of values in [0, 1] with its denominator and its interval."""

    value: float | None  #: The mean; None without values.
    total: float  #: Sum of the values; the number of correct answers if each value is 0 or 1.
    n: int  #: Number of values.
    ci95: Interval | None  #: 95 % interval of the mean.
    clusters: int | None = None  #: Number of clusters; None if the values are independent.


_EMPTY_PROPORTION = Proportion(value=None, total=0, n=0, ci95=None)


def proportion(
    values: Sequence[float], clusters: Sequence[Hashable] | None = None, trials: int = 1
) -> Proportion:
    """Return the mean of one value per problem, with a 95 % interval.

    Independent values that are all 0 or 1 get Wilson's interval. Other values get the interval of
    :func:`~fsdpo_data.core.statistics.mean_interval`.

    Args:
        values: One value in [0, 1] per problem.
        clusters: The cluster of each problem; None if the problems are independent.
        trials: Number of samples behind each value.

    Raises:
        ValueError: if a value is outside [0, 1].
    """
    if not all(0 <= value <= 1 for value in values):
        raise ValueError("a proportion needs values in [0, 1]; divide counts by their maximum")
    n = len(values)
    total = math.fsum(values)
    if not n:
        return _EMPTY_PROPORTION
    if clusters is None and all(value in (0, 1) for value in values):
        low, high = wilson_interval(total, n) or (0.0, 1.0)
        return Proportion(value=total / n, total=total, n=n, ci95=(low, high))
    sums = list(cluster_sums(values, clusters).values())
    return Proportion(
        value=total / n,
        total=total,
        n=n,
        ci95=mean_interval(sums, trials),
        clusters=None if clusters is None else len(sums),
    )


def cluster_sums(
    values: Sequence[float], clusters: Sequence[Hashable] | None
) -> Mapping[Hashable, tuple[float, int]]:
    """Return (sum, count) of the values by cluster; without clusters, by the index of the value."""
    sums: dict[Hashable, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    names = range(len(values)) if clusters is None else clusters
    for cluster, value in zip(names, values, strict=True):
        total, count = sums[cluster]
        sums[cluster] = (total + value, count + 1)
    return sums


def macro_average(proportions: Sequence[Proportion]) -> Proportion:
    """Return the mean of independent proportions with equal weights.

    The interval follows Zou & Donner (2008), which preserves the skew of the single intervals.
    """
    values: list[float] = []
    lows: list[float] = []
    highs: list[float] = []
    for single in proportions:
        if single.value is not None and single.ci95 is not None:
            values.append(single.value)
            lows.append(single.ci95[0])
            highs.append(single.ci95[1])
    if not values:
        return _EMPTY_PROPORTION
    n = len(values)
    mean = math.fsum(values) / n
    low = max(0.0, mean - math.dist(values, lows) / n)
    high = min(1.0, mean + math.dist(values, highs) / n)
    return Proportion(
        value=mean,
        total=math.fsum(single.total for single in proportions),
        n=sum(single.n for single in proportions),
        ci95=(low, high),
    )


@dataclass(frozen=True, slots=True)
class MeanDifference:
    """The mean of paired differences in [-1, 1], with its interval."""

    value: float  #: The mean.
    n: int  #: Number of differences.
    ci95: Interval  #: 95 % interval of the mean.
    p: float | None  #: Two-sided p-value for a mean of zero; None for a mean over benchmarks.
    clusters: int | None  #: Number of clusters; None if the differences are independent.


def mean_difference(
    differences: Sequence[float], clusters: Sequence[Hashable] | None = None
) -> MeanDifference:
    """Return the mean of one paired difference per problem, with a 95 % interval.

    The differences are between two values in [0, 1], such as two accuracies over eight samples. The
    interval is Student's over the groups, and the p-value is the one at which it ends at zero. If
    all groups have the same mean, the interval has half an imagined group at each end of [-1, 1],
    because it would otherwise have no width.

    Args:
        differences: One difference in [-1, 1] per problem.
        clusters: The cluster of each problem; None if the problems are independent.
    """
    from scipy.special import stdtr, stdtrit

    n = len(differences)
    mean = math.fsum(differences) / n
    groups = list(cluster_sums(differences, clusters).values())
    residuals = math.fsum((total - mean * count) ** 2 for total, count in groups)
    if math.sqrt(residuals) <= _EQUAL_MEANS * n:
        mean_count = n / len(groups)
        residuals = mean_count**2 * ((1 - mean) ** 2 + (1 + mean) ** 2) / 2
    freedom = max(1, len(groups) - 1)
    error = math.sqrt(len(groups) / freedom * residuals) / n
    half_width = float(stdtrit(freedom, 0.975)) * error
    return MeanDifference(
        value=mean,
        n=n,
        ci95=(max(-1.0, mean - half_width), min(1.0, mean + half_width)),
        p=float(2 * stdtr(freedom, -abs(mean) / error)),
        clusters=None if clusters is None else len(groups),
    )


def macro_difference(
    differences: Sequence[float], intervals: Sequence[Interval], n: int
) -> MeanDifference:
    """Return the mean of independent differences with equal weights, as in :func:`macro_average`.

    Args:
        differences: One difference per benchmark.
        intervals: The interval of each difference.
        n: Number of problems of all benchmarks.
    """
    mean = math.fsum(differences) / len(differences)
    low = mean - math.dist(differences, [low for low, _ in intervals]) / len(differences)
    high = mean + math.dist(differences, [high for _, high in intervals]) / len(differences)
    return MeanDifference(
        value=mean, n=n, ci95=(max(-1.0, low), min(1.0, high)), p=None, clusters=None
    )


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Return the probability that k of n samples, without replacement, include a correct sample.

    This is the unbiased estimator of Chen et al. (2021).

    Raises:
        ValueError: if k is not between 1 and n.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} of {n} samples: expected k from 1 to {n}")
    return 1 - math.comb(n - correct, k) / math.comb(n, k)


def mcnemar(only_a: int, only_b: int) -> float:
    """Return the two-sided exact p-value for two systems on the same independent problems."""
    from scipy.special import bdtr

    return min(1.0, float(2 * bdtr(min(only_a, only_b), only_a + only_b, 0.5)))


def clustered_mcnemar(differences: Sequence[int]) -> float:
    """Return the two-sided exact p-value for clusters of problems.

    If the systems are equally good, the difference of each cluster has a random sign. The p-value
    is the fraction of all sign patterns whose sum is at least as far from zero as the observed sum.
    For clusters of one problem, this is McNemar's exact test.

    Args:
        differences: For each cluster, the problems that only the second system solves minus the
            problems that only the first system solves.
    """
    pattern_counts: Counter[int] = Counter({0: 1})  # number of sign patterns by their sum
    for difference in filter(None, differences):
        extended_counts: Counter[int] = Counter()
        for total, count in pattern_counts.items():
            extended_counts[total + difference] += count
            extended_counts[total - difference] += count
        pattern_counts = extended_counts
    observed = abs(sum(differences))
    n_extreme = sum(count for total, count in pattern_counts.items() if abs(total) >= observed)
    return (n_extreme * 10**18 // pattern_counts.total()) / 10**18


def paired_interval(gains: Sequence[int], clusters: Sequence[Hashable] | None = None) -> Interval:
    """Return Tango's 95 % score interval of a paired difference of proportions (Tango 1998).

    The interval has a positive width even if both systems have the same verdicts. For clusters, the
    counts are scaled to the effective sample size.

    Args:
        gains: 1 if only the second system is right, -1 if only the first is right, else 0.
        clusters: The cluster of each problem; None if the problems are independent.
    """
    n = len(gains)
    n_won = float(gains.count(1))
    n_lost = float(gains.count(-1))
    difference = (n_won - n_lost) / n
    scale = 1.0
    if clusters is not None:
        sums = list(cluster_sums(gains, clusters).values())
        variance = (n_won + n_lost) / n - difference**2
        scale = effective_sample_size(sums, variance, n) / n

    def interval_bound(outside: float) -> float:
        return _find_bound(
            won=scale * n_won,
            lost=scale * n_lost,
            n=scale * n,
            inside=difference,
            outside=outside,
        )

    return interval_bound(-1.0), interval_bound(1.0)


def _find_bound(*, won: float, lost: float, n: float, inside: float, outside: float) -> float:
    """Return the difference between ``inside`` and ``outside`` where the score test rejects."""
    for _ in range(_BISECTION_STEPS):
        middle = (inside + outside) / 2
        if abs(_score_statistic(won, lost, n, middle)) < Z95:
            inside = middle
        else:
            outside = middle
    return inside


def _score_statistic(won: float, lost: float, n: float, difference: float) -> float:
    """Return Tango's statistic: the distance of the counts from a difference in standard errors."""
    b = (2 * n - won + lost) * difference - won - lost
    c = -lost * difference * (1 - difference)
    fraction_lost = (math.sqrt(b * b - 8 * n * c) - b) / (4 * n)
    variance = n * (2 * fraction_lost + difference * (1 - difference))
    return (won - lost - n * difference) / math.sqrt(variance) if variance > 0 else math.inf
