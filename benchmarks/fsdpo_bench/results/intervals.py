"""Numbers with their uncertainty: shares with intervals, pass@k, paired differences.

Everything here takes plain numbers and is exact, or seeded. Problems that share a base problem are
alike; they are told by their cluster, and the cluster is then what is independent.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from fsdpo_data.core.statistics import wilson_interval

#: Normal quantile of two-sided 95 % intervals.
Z95 = 1.959964
#: Resamples of a bootstrap interval.
RESAMPLES = 10_000

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Share:
    """A mean of values in [0, 1] with its denominator and its uncertainty.

    Attributes:
        value: The mean; None for no problems.
        total: Sum of the values: the correct answers, if each is 0 or 1.
        n: Problems.
        ci95: 95 % interval of the mean.
        clusters: Independent clusters of problems; None if the problems are independent.
    """

    value: float | None
    total: float
    n: int
    ci95: Interval | None
    clusters: int | None = None


def share(
    values: Sequence[float], clusters: Sequence[Hashable] | None = None, trials: int = 1
) -> Share:
    """Return the mean of one value per problem, with a 95 % interval.

    Independent right-or-wrong values get Wilson's interval. Others get Wilson's interval at the
    effective sample size that the variance between clusters (or problems) stands for, with a t
    quantile for few clusters (Korn & Graubard 1998; Dean & Pagano 2015). Near 0 and 1 it stays
    inside [0, 1], and it is not empty where every value is the same.

    Args:
        values: One per problem, in [0, 1].
        clusters: The cluster of each problem; None if all are independent.
        trials: Right-or-wrong samples that each value is made of; no value tells more than those.
    """
    n, total = len(values), math.fsum(values)
    if not n:
        return Share(None, 0, 0, None)
    groups = None if clusters is None else len(set(clusters))
    if clusters is None and all(value in (0, 1) for value in values):
        size = float(n)
    else:
        sums = cluster_sums(values, clusters)
        size = _effective_size(list(sums.values()), total / n, float(n * trials))
    interval = wilson_interval(size * total / n, size) or [0.0, 1.0]
    return Share(total / n, total, n, (interval[0], interval[1]), groups)


def cluster_sums(
    values: Sequence[float], clusters: Sequence[Hashable] | None
) -> Mapping[Hashable, tuple[float, int]]:
    """Return (sum, count) of the values by cluster; each value is its own where there are none."""
    sums: dict[Hashable, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for cluster, value in zip(
        range(len(values)) if clusters is None else clusters, values, strict=True
    ):
        total, count = sums[cluster]
        sums[cluster] = (total + value, count + 1)
    return sums


def _effective_size(groups: Sequence[tuple[float, int]], mean: float, most: float) -> float:
    """Return the number of independent problems that tell as much as these clusters."""
    if not 0 < mean < 1 or len(groups) < 2:
        # No variance to be seen: only the clusters are known to be independent.
        return float(len(groups))
    n = sum(count for _, count in groups)
    residuals = math.fsum((total - mean * count) ** 2 for total, count in groups)
    variance = len(groups) / (len(groups) - 1) * residuals / n**2
    size = mean * (1 - mean) / variance if variance > 0 else most
    return min(size, most) * (Z95 / t_quantile(len(groups) - 1)) ** 2


def t_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t (expanded in 1/freedom; 0.3 % off at 4)."""
    z = Z95
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))


def macro(shares: Sequence[Share]) -> Share:
    """Return the mean of independent shares, each counting the same.

    The interval is that of Zou & Donner (2008), which keeps the skew of each share's own.
    """
    known = [each for each in shares if each.value is not None and each.ci95 is not None]
    if not known:
        return Share(None, 0, 0, None)
    mean = math.fsum(each.value or 0 for each in known) / len(known)
    below = math.hypot(*((each.value or 0) - (each.ci95 or (0, 0))[0] for each in known))
    above = math.hypot(*((each.ci95 or (0, 0))[1] - (each.value or 0) for each in known))
    interval = (max(0.0, mean - below / len(known)), min(1.0, mean + above / len(known)))
    return Share(mean, math.fsum(s.total for s in known), sum(s.n for s in known), interval)


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
    """Return the two-sided exact p-value for two systems on the same independent problems.

    Args:
        only_a: Problems that only the first solves.
        only_b: Problems that only the second solves.
    """
    n, tail, ways = only_a + only_b, 0, 1
    for i in range(min(only_a, only_b) + 1):
        tail += ways
        ways = ways * (n - i) // (i + 1)
    # Whole numbers, as 2**n is no float for many problems.
    return min(1.0, (2 * tail * 10**18 >> n) / 10**18)


def clustered_mcnemar(differences: Sequence[int]) -> float:
    """Return the two-sided exact p-value where problems come in clusters.

    If neither system is better, each cluster's difference could as well have the other sign. The
    p-value is the share of all sign patterns whose sum is at least as far from zero; for clusters
    of one problem that is McNemar's exact test.

    Args:
        differences: For each cluster, problems solved by the second system less by the first.
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


def paired_bootstrap(
    differences: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    *,
    seed: int,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return the percentile 95 % interval of a mean difference, resampling whole clusters.

    Args:
        differences: For each problem, the second system's value less the first's.
        clusters: The cluster of each problem; None if all are independent.
        seed: Of the draws; the same seed gives the same interval.
        resamples: How many.
    """
    import numpy as np

    # Clusters with the same sum and size are interchangeable, so a resample is how often each
    # kind was drawn: five thousand problems are three kinds.
    kinds = sorted(Counter(cluster_sums(differences, clusters).values()).items())
    counts = np.array([count for _, count in kinds])
    sums, sizes = np.array([kind for kind, _ in kinds]).T
    drawn = np.random.default_rng(seed).multinomial(
        counts.sum(), counts / counts.sum(), size=resamples
    )
    low, high = np.quantile((drawn @ sums) / (drawn @ sizes), (0.025, 0.975))
    return float(low), float(high)
