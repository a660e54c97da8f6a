"""Confidence intervals, paired tests and AUCs.

There is one interval for each kind of number:

- :func:`wilson_interval` for means of values in [0, 1], such as accuracy, pass@k and ranking AUC;
- Student's interval in :func:`mean_difference`, for differences of such means over problems or over
  training seeds;
- :func:`bootstrap_interval` for statistics that are not means, such as F1, a pooled AUC and kappa;
- :func:`macro_interval` for a mean of several such numbers with equal weights.

All intervals have a confidence of 95 %, and all functions are deterministic. Problems that share a
base problem, and samples of one problem, form a cluster. Clusters are the independent units.

Array suffixes: ``N`` values, ``G`` clusters, ``D`` draws of the bootstrap.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Hashable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from fsdpo_data.core.lazy import np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Z95 = 1.959964  #: Normal quantile of two-sided 95 % intervals.
_BOOTSTRAP_DRAWS = 2_000  #: Number of resampled data sets.
_MAX_BATCH_COUNTS = 2_000_000  #: Counts that the bootstrap holds in memory at a time.
_EQUAL_MEANS = 1e-12  #: Deviation per value below which clusters have the same mean.


class Interval(NamedTuple):
    """A 95 % confidence interval."""

    low: float  #: Lower bound.
    high: float  #: Upper bound.

    def round_bounds(self, digits: int) -> Interval:
        """Return the interval with rounded bounds, for files."""
        return Interval(round(self.low, digits), round(self.high, digits))


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with its interval and its denominator."""

    value: float | None  #: The mean; None without values.
    n: int  #: Number of values.
    ci95: Interval | None  #: 95 % interval of the mean; None without values.
    clusters: int | None = None  #: Number of clusters; None if the values are independent.

    @property
    def total(self) -> float:
        """Sum of the values, such as the number of correct answers; 0 without values."""
        return 0.0 if self.value is None else self.value * self.n

    def round(self, digits: int) -> Mean:
        """Return the mean with a rounded value and interval, for files."""
        return replace(
            self,
            value=None if self.value is None else round(self.value, digits),
            ci95=self.ci95.round_bounds(digits) if self.ci95 else None,
        )


@dataclass(frozen=True, slots=True)
class Difference(Mean):
    """The mean of one or more differences with its interval."""

    value: float  #: The mean.
    ci95: Interval  #: 95 % interval of the mean.


@dataclass(frozen=True, slots=True)
class MeanDifference(Difference):
    """The mean of one or more paired differences with its interval and its p-value."""

    p: float = field(kw_only=True)  #: Two-sided p-value of a mean of 0.


class ClusterSums(NamedTuple):
    """The values of each cluster."""

    totals_G: np.ndarray  #: Sum of the values.
    counts_G: np.ndarray  #: Number of values.


def sum_clusters(values_N: ArrayLike, clusters_N: Sequence[Hashable] | None = None) -> ClusterSums:
    """Return the sum and the number of the values of each cluster.

    Args:
        values_N: The values.
        clusters_N: The cluster of each value; None if each value is a cluster of its own.
    """
    values_N = np.asarray(values_N, dtype=float)
    if clusters_N is None:
        return ClusterSums(values_N, np.ones(len(values_N)))
    index_N = _number_clusters(clusters_N)
    return ClusterSums(np.bincount(index_N, values_N), np.bincount(index_N).astype(float))


def _number_clusters(clusters_N: Sequence[Hashable]) -> np.ndarray:
    """Return the number of the cluster of each value, from 0, in the order of their appearance."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters_N], int)


# Means of values in [0, 1]


def mean_rate(values_N: ArrayLike, clusters_N: Sequence[Hashable] | None = None) -> Mean:
    """Return the mean of values in [0, 1], with the interval of :func:`wilson_interval`.

    Args:
        values_N: The values, such as 1 for a correct answer, or the pass@k of a problem.
        clusters_N: The cluster of each value; None if the values are independent.

    Raises:
        ValueError: if a value is outside [0, 1].
    """
    values_N = np.asarray(values_N, dtype=float)
    if not ((values_N >= 0) & (values_N <= 1)).all():
        raise ValueError("a rate needs values in [0, 1]; divide counts by their maximum")
    if not len(values_N):
        return Mean(value=None, n=0, ci95=None)
    sums = sum_clusters(values_N, clusters_N)
    return Mean(
        value=float(values_N.mean()),
        n=len(values_N),
        ci95=wilson_interval(*sums),
        clusters=None if clusters_N is None else len(sums.counts_G),
    )


def wilson_interval(totals_G: ArrayLike, counts_G: ArrayLike | None = None) -> Interval | None:
    """Return the interval of a mean of values in [0, 1]; None without values.

    For one value of 0 or 1 per cluster, this is Wilson's score interval (Wilson 1927). Otherwise,
    it is Wilson's interval at the effective sample size. The variance between clusters gives this
    size, with a t quantile for few clusters (Korn & Graubard 1998; Dean & Pagano 2015). The
    interval stays inside [0, 1], and has a positive width even if all values are equal.

    ``benchmarks/measured/intervals.txt`` has its coverage.

    Args:
        totals_G: Sum of the values of each cluster.
        counts_G: Number of values of each cluster; None for one value each.
    """
    totals_G = np.asarray(totals_G, dtype=float)
    counts_G = np.ones(len(totals_G)) if counts_G is None else np.asarray(counts_G, dtype=float)
    n = float(counts_G.sum())
    if not n:
        return None
    mean = float(totals_G.sum()) / n
    are_independent_trials = (counts_G == 1).all() and np.isin(totals_G, (0, 1)).all()
    size = n if are_independent_trials else _effective_size(totals_G, counts_G)
    z2 = Z95**2
    scale = 1 + z2 / size
    centre = (mean + z2 / (2 * size)) / scale
    half_width = Z95 / scale * math.sqrt(mean * (1 - mean) / size + z2 / (4 * size**2))
    return Interval(max(0.0, centre - half_width), min(1.0, centre + half_width))


def _effective_size(totals_G: np.ndarray, counts_G: np.ndarray) -> float:
    """Return the number of independent trials with the same information as clustered values.

    Near 0 and 1, the mean depends on few clusters, and most samples contain none of them. The
    variance that such a sample shows is too small. One imagined cluster at the opposite end of
    [0, 1] corrects the variance, as imagined counts do for a proportion (Agresti & Coull 1998).
    """
    from scipy.special import stdtrit

    n_clusters = len(totals_G)
    mean_count = counts_G.mean()
    imagined_total = 0.0 if totals_G.sum() > counts_G.sum() / 2 else mean_count
    extended = ClusterSums(np.append(totals_G, imagined_total), np.append(counts_G, mean_count))
    mean, error = _mean_and_error(extended)
    size = mean * (1 - mean) / error**2 * n_clusters / (n_clusters + 1)
    return float(size * (Z95 / stdtrit(n_clusters, 0.975)) ** 2)


def _mean_and_error(sums: ClusterSums) -> tuple[float, float]:
    """Return the mean of all values, and its standard error over two or more clusters."""
    totals_G, counts_G = sums
    n_clusters = len(totals_G)
    n = counts_G.sum()
    mean = totals_G.sum() / n
    squares = ((totals_G - mean * counts_G) ** 2).sum()
    return float(mean), math.sqrt(n_clusters / (n_clusters - 1) * squares) / n


def macro_interval(
    values: Sequence[float],
    intervals: Sequence[Interval],
    clusters: Sequence[Collection[Hashable]] | None = None,
) -> Interval:
    """Return the interval of the mean of numbers with equal weights.

    It preserves the skew of the single intervals (Zou & Donner 2008). Benchmarks that share
    problems have correlated numbers (Zou 2007): equal benchmarks have the interval of one.

    Args:
        values: One number per benchmark.
        intervals: The interval of each number.
        clusters: The clusters that each number is a mean over. Numbers over the same clusters are
            assumed to have the same values there. None if the numbers are independent.
    """
    n = len(values)
    correlations = {}
    if clusters is not None:
        sets = [set(entry) for entry in clusters]
        for first, second in itertools.combinations(range(n), 2):
            correlations[first, second] = _shared_fraction(sets[first], sets[second])

    def spread(bounds: Sequence[float]) -> float:
        distances = [value - bound for value, bound in zip(values, bounds, strict=True)]
        products = [
            2 * correlation * distances[first] * distances[second]
            for (first, second), correlation in correlations.items()
        ]
        return math.sqrt(math.fsum([*(d * d for d in distances), *products])) / n

    mean = math.fsum(values) / n
    low = mean - spread([interval.low for interval in intervals])
    high = mean + spread([interval.high for interval in intervals])
    return Interval(low, high)


def _shared_fraction(first: Set[Hashable], second: Set[Hashable]) -> float:
    """Return the correlation of two means with the same values over the clusters that both have."""
    shared = len(first & second)
    return shared / math.sqrt(len(first) * len(second)) if shared else 0.0


# Differences


def mean_difference(
    differences_N: ArrayLike, clusters_N: Sequence[Hashable] | None = None
) -> MeanDifference:
    """Return the mean of paired differences in [-1, 1], with Student's interval (Student 1908).

    The p-value is of Student's t test, over clusters. If all clusters have the same mean, the
    interval would have no width. Half an imagined cluster at each end of [-1, 1] then gives it one.

    Args:
        differences_N: Differences of values in [0, 1], such as of two accuracies of a problem.
        clusters_N: The cluster of each difference; None if the differences are independent. A
            cluster is a problem, several problems with one base problem, or a training seed.

    Raises:
        ValueError: without differences.
    """
    from scipy.special import stdtr, stdtrit

    sums = sum_clusters(differences_N, clusters_N)
    if not len(sums.counts_G):
        raise ValueError("a mean difference needs at least one difference")
    mean, error = _mean_difference_and_error(sums)
    n_clusters = len(sums.counts_G)
    freedom = max(1, n_clusters - 1)
    half_width = float(stdtrit(freedom, 0.975)) * error
    return MeanDifference(
        value=mean,
        n=int(sums.counts_G.sum()),
        ci95=Interval(max(-1.0, mean - half_width), min(1.0, mean + half_width)),
        p=float(2 * stdtr(freedom, -abs(mean) / error)),
        clusters=None if clusters_N is None else n_clusters,
    )


def _mean_difference_and_error(sums: ClusterSums) -> tuple[float, float]:
    """Return the mean of differences in [-1, 1] and its standard error, which is above 0."""
    n_clusters = len(sums.counts_G)
    if n_clusters > 1:
        mean, error = _mean_and_error(sums)
        if error > _EQUAL_MEANS:
            return mean, error
    mean = float(sums.totals_G.sum() / sums.counts_G.sum())
    squares = ((1 - mean) ** 2 + (1 + mean) ** 2) / 2
    return mean, math.sqrt(squares / (n_clusters * max(1, n_clusters - 1)))


def mcnemar(gains_G: ArrayLike) -> float:
    """Return the two-sided p-value of the exact McNemar test, over problems or clusters.

    If two systems are equally good, the gain of each cluster has a random sign. The p-value is the
    fraction of all sign patterns whose sum is at least as far from zero as the observed sum. For
    clusters of one problem, this is McNemar's exact test (McNemar 1947).

    Args:
        gains_G: For each cluster, the number of problems that only the second system solves, minus
            the number of problems that only the first system solves.
    """
    gains_G = np.asarray(gains_G, dtype=int)
    sizes = np.abs(gains_G[gains_G != 0])
    n = int(sizes.sum())
    # The probability of each sum of signed gains, from -n to n.
    probabilities = np.zeros(2 * n + 1)
    probabilities[n] = 1.0
    for size in sizes:
        probabilities = (np.roll(probabilities, size) + np.roll(probabilities, -size)) / 2
    is_extreme = np.abs(np.arange(-n, n + 1)) >= abs(gains_G.sum())
    return min(1.0, float(probabilities[is_extreme].sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values corrected for their number (Holm 1979), in the same order."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


# Statistics that are not means


def bootstrap_interval(
    statistic: Callable[..., np.ndarray], *stratum_sizes: int, seed: int = 0
) -> Interval | None:
    """Return the expanded percentile interval of a statistic (Hesterberg 2015).

    The bootstrap draws clusters with replacement, separately in each stratum. For few clusters, the
    percentiles are further out, as the quantiles of Student's t distribution are.

    Args:
        statistic: Function of one array per stratum, of shape (D, G): how often each draw contains
            each cluster. It returns the statistic of each draw; NaN where it is undefined.
        stratum_sizes: Number of clusters of each stratum.
        seed: Seed of the draws.

    Returns:
        The interval; None if a stratum has fewer than two clusters, or all draws are equal.
    """
    from scipy.special import ndtr, stdtrit

    if min(stratum_sizes) < 2:
        return None
    rng = np.random.default_rng(seed)
    batch_size = max(1, _MAX_BATCH_COUNTS // sum(stratum_sizes))
    batches = []
    for start in range(0, _BOOTSTRAP_DRAWS, batch_size):
        n_draws = min(batch_size, _BOOTSTRAP_DRAWS - start)
        counts = [rng.multinomial(n, np.full(n, 1 / n), n_draws) for n in stratum_sizes]
        batches.append(statistic(*counts))
    values_D = np.concatenate(batches)
    values_D = values_D[~np.isnan(values_D)]
    if not len(values_D) or values_D.min() == values_D.max():
        return None
    n_clusters = sum(stratum_sizes)
    freedom = n_clusters - len(stratum_sizes)
    tail = float(ndtr(-math.sqrt(n_clusters / freedom) * stdtrit(freedom, 0.975)))
    low, high = np.quantile(values_D, (tail, 1 - tail))
    return Interval(float(low), float(high))


def auc(scores_N: ArrayLike, labels_N: ArrayLike) -> float | None:
    """Return the probability that a right item scores above a wrong one; ties count half.

    This is the Mann-Whitney statistic, equal to the area under the ROC curve. The result is None
    if all labels are equal, or if a score is NaN, which has no order.

    Args:
        scores_N: One score per item.
        labels_N: One label per item, True for a right item.
    """
    scores_N = np.asarray(scores_N, dtype=float)
    labels_N = np.asarray(labels_N, dtype=bool)
    right_scores, wrong_scores = scores_N[labels_N], np.sort(scores_N[~labels_N])
    if not len(right_scores) or not len(wrong_scores) or np.isnan(scores_N).any():
        return None
    n_below = np.searchsorted(wrong_scores, right_scores, side="left")
    n_up_to = np.searchsorted(wrong_scores, right_scores, side="right")
    return int((n_below + n_up_to).sum()) / (2 * len(right_scores) * len(wrong_scores))


def auc_interval(
    problems_N: Sequence[Hashable], scores_N: ArrayLike, labels_N: ArrayLike
) -> Interval | None:
    """Return the bootstrap interval of :func:`auc`, with problems as the independent units.

    The interval is None below two problems, if all labels are equal, and for an AUC of 0 or 1.
    """
    if auc(scores_N, labels_N) is None:
        return None
    scores_N = np.asarray(scores_N, dtype=float)
    order_N = np.argsort(scores_N, kind="stable")
    sorted_scores_N = scores_N[order_N]
    is_right_N = np.asarray(labels_N, dtype=bool)[order_N]
    problem_N = _number_clusters(problems_N)[order_N]
    is_first_N = np.append(True, sorted_scores_N[1:] != sorted_scores_N[:-1])
    starts = np.flatnonzero(is_first_N)  # of the items with equal scores

    def resampled_auc(counts_G: np.ndarray) -> float:
        weights_N = counts_G[problem_N]
        right = np.add.reduceat(weights_N * is_right_N, starts)
        wrong = np.add.reduceat(weights_N * ~is_right_N, starts)
        n_pairs = right.sum() * wrong.sum()
        below = wrong.cumsum() - wrong / 2
        return float((right * below).sum() / n_pairs) if n_pairs else math.nan

    def resampled_aucs(counts_DG: np.ndarray) -> np.ndarray:
        return np.array([resampled_auc(counts_G) for counts_G in counts_DG])

    return bootstrap_interval(resampled_aucs, int(problem_N.max()) + 1)


def problem_aucs(
    problems_N: Sequence[Hashable], scores_N: ArrayLike, labels_N: ArrayLike
) -> dict[Hashable, float]:
    """Return the AUC within each problem that has right and wrong items, by problem."""
    scores_N = np.asarray(scores_N, dtype=float)
    labels_N = np.asarray(labels_N, dtype=bool)
    problem_N = _number_clusters(problems_N)
    order_N = np.argsort(problem_N, kind="stable")
    boundaries = np.flatnonzero(np.diff(problem_N[order_N])) + 1
    areas = {
        problems_N[part[0]]: auc(scores_N[part], labels_N[part])
        for part in np.split(order_N, boundaries)
        if len(part)
    }
    return {problem: area for problem, area in areas.items() if area is not None}


def ranking_auc(
    problems_N: Sequence[Hashable],
    scores_N: ArrayLike,
    labels_N: ArrayLike,
    clusters_N: Sequence[Hashable] | None = None,
) -> Mean:
    """Return the mean over problems of the AUC within each problem.

    Only comparisons within a problem count, so the difficulty of problems has no effect.

    Args:
        problems_N: The problem of each item.
        scores_N: One score per item.
        labels_N: One label per item, True for a right item.
        clusters_N: The cluster of the problem of each item; None if problems are independent.
    """
    areas = problem_aucs(problems_N, scores_N, labels_N)
    clusters = None
    if clusters_N is not None:
        cluster_by_problem = dict(zip(problems_N, clusters_N, strict=True))
        clusters = [cluster_by_problem[problem] for problem in areas]
    return mean_rate(list(areas.values()), clusters)
