"""Numbers with their uncertainty: shares with intervals, pass@k, paired differences.

Everything here takes plain numbers and is exact, or seeded. Problems that share a base problem are
alike; they are told by their cluster, and the cluster is then what is independent.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from fsdpo_data.core.statistics import Z95, effective_sample_size, mean_interval, wilson_interval

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Proportion:
    """A mean of values in [0, 1] with its denominator and its uncertainty."""

    value: float | None
    total: float  #: Sum of the values: the correct answers, if each is 0 or 1.
    n: int
    ci95: Interval | None  #: 95 % interval of the mean.
    clusters: int | None = None


def proportion(
    values: Sequence[float], clusters: Sequence[Hashable] | None = None, trials: int = 1
) -> Proportion:
    """Return the mean of one value per problem, with a 95 % interval.

    Independent right-or-wrong values get Wilson's interval, others that of :func:`mean_interval`.
    Each is made of as many samples as there are ``trials``, and tells no more than those.
    """
    n, total = len(values), math.fsum(values)
    if not n:
        return Proportion(None, 0, 0, None)
    if clusters is None and all(value in (0, 1) for value in values):
        low, high = wilson_interval(total, n) or (0.0, 1.0)
        return Proportion(total / n, total, n, (low, high))
    groups = list(cluster_sums(values, clusters).values())
    count = None if clusters is None else len(groups)
    return Proportion(total / n, total, n, mean_interval(groups, trials), count)


def cluster_sums(
    values: Sequence[float], clusters: Sequence[Hashable] | None
) -> Mapping[Hashable, tuple[float, int]]:
    """Return (sum, count) of the values by cluster; each value is its own where there are none."""
    sums: dict[Hashable, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    names = range(len(values)) if clusters is None else clusters
    for cluster, value in zip(names, values, strict=True):
        total, count = sums[cluster]
        sums[cluster] = (total + value, count + 1)
    return sums


def macro_average(shares: Sequence[Proportion]) -> Proportion:
    """Return the mean of independent shares, each counting the same.

    The interval is that of Zou & Donner (2008), which keeps the skew of each share's own.
    """
    known = [(each.value, *each.ci95) for each in shares if each.value is not None and each.ci95]
    if not known:
        return Proportion(None, 0, 0, None)
    values, lows, highs = zip(*known, strict=True)
    mean, n = math.fsum(values) / len(known), len(known)
    interval = mean - math.dist(values, lows) / n, mean + math.dist(values, highs) / n
    interval = max(0.0, interval[0]), min(1.0, interval[1])
    return Proportion(mean, math.fsum(s.total for s in shares), sum(s.n for s in shares), interval)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Return the chance that k of n samples, drawn without replacement, hold a correct one.

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
    """Return the two-sided exact p-value where problems come in clusters.

    If neither system is better, each cluster's difference could as well have the other sign. The
    p-value is the share of all sign patterns whose sum is at least as far from zero; for clusters
    of one problem that is McNemar's exact test.

    ``differences`` are, for each cluster, problems solved by the second system less by the first.
    """
    ways: Counter[int] = Counter({0: 1})
    for each in filter(None, differences):
        spread: Counter[int] = Counter()
        for total, count in ways.items():
            spread[total + each] += count
            spread[total - each] += count
        ways = spread
    observed = abs(sum(differences))
    extreme = sum(count for total, count in ways.items() if abs(total) >= observed)
    return (extreme * 10**18 // ways.total()) / 10**18


def paired_interval(gains: Sequence[int], clusters: Sequence[Hashable] | None = None) -> Interval:
    """Return Tango's score interval of a paired difference of proportions, 95 % (Tango 1998).

    It has a width where no problem is decided differently: that many problems cannot show that
    none would be. Where problems come in clusters, counts are scaled to the effective sample size.

    A gain is 1 where only the second system is right, -1 where only the first is.
    """
    n, won, lost = len(gains), float(gains.count(1)), float(gains.count(-1))
    scale = 1.0
    if clusters is not None:
        groups = list(cluster_sums(gains, clusters).values())
        scale = effective_sample_size(groups, (won + lost) / n - ((won - lost) / n) ** 2, n) / n
    counts = (scale * won, scale * lost, scale * n)
    middle = (won - lost) / n
    return _bound(*counts, middle, -1.0), _bound(*counts, middle, 1.0)


def _bound(won: float, lost: float, n: float, inside: float, outside: float) -> float:
    """Return the difference between two where the score test begins to reject, by bisection."""
    for _ in range(50):
        middle = (inside + outside) / 2
        if abs(_score(won, lost, n, middle)) < Z95:
            inside = middle
        else:
            outside = middle
    return inside


def _score(won: float, lost: float, n: float, difference: float) -> float:
    """Return Tango's statistic: how far the counts are from a difference, in standard errors."""
    b = (2 * n - won + lost) * difference - won - lost
    c = -lost * difference * (1 - difference)
    share_lost = (math.sqrt(b * b - 8 * n * c) - b) / (4 * n)
    variance = n * (2 * share_lost + difference * (1 - difference))
    return (won - lost - n * difference) / math.sqrt(variance) if variance > 0 else math.inf
