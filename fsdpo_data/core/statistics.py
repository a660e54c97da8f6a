"""How well scores tell right from wrong: areas under ROC curves, over all items and by problem."""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

Z95 = 1.959964  #: Normal quantile of two-sided 95 % intervals.


@dataclass(frozen=True, slots=True)
class RankingAuc:
    """An area under the curve with its denominator and its uncertainty."""

    value: float | None  #: Mean over problems; None if there is none with right and wrong items.
    problems: int
    ci95: tuple[float, float] | None  #: 95 % interval over problems; None for fewer than two.


def auc(scores: Sequence[float], labels: Sequence[bool]) -> float | None:
    """Return the chance that a right item scores above a wrong one; a tie counts half.

    This is the Mann-Whitney statistic. None if all items are of one kind.
    """
    above, below = _sides(scores, labels)
    if not above or not below:
        return None
    wins = sum(bisect_left(below, each) + bisect_right(below, each) for each in above)
    return wins / (2 * len(above) * len(below))


def _sides(scores: Sequence[float], right: Sequence[bool]) -> tuple[list[float], list[float]]:
    """Return the scores of right items and those of wrong ones, each in order."""
    both = sorted(zip(scores, right, strict=True))
    return [score for score, good in both if good], [score for score, good in both if not good]


def auc_interval(
    problems: Sequence[Hashable], scores: Sequence[float], labels: Sequence[bool]
) -> tuple[float, float] | None:
    """Return a 95 % interval of :func:`auc`; problems are the independent units.

    The variance is that of clustered placements (Obuchowski 1997); the interval is Wilson's at the
    sample size that it stands for, as :func:`mean_interval`'s. None for fewer than two problems, or
    where all items are of one kind.
    """
    area = auc(scores, labels)
    if area is None or len(set(problems)) < 2:
        return None
    above, below = _sides(scores, labels)
    parts: dict[Hashable, float] = defaultdict(float)
    for problem, score, good in zip(problems, scores, labels, strict=True):
        others = below if good else above
        under = (bisect_left(others, score) + bisect_right(others, score)) / (2 * len(others))
        won = under if good else 1 - under
        parts[problem] += (won - area) / (len(above) if good else len(below))
    groups = [(area + len(parts) * part, 1.0) for part in parts.values()]
    size = effective_sample_size(groups, area * (1 - area), len(labels))
    low, high = wilson_interval(size * area, size) or (0.0, 1.0)
    return low, high


def ranking_auc(
    problems: Sequence[Hashable], scores: Sequence[float], labels: Sequence[bool]
) -> RankingAuc:
    """Return the mean over problems of :func:`auc` among the items of each.

    Scores need to rank within a problem only; how hard problems are does not come in.
    """
    return mean_auc(problem_aucs(problems, scores, labels))


def problem_aucs(
    problems: Sequence[Hashable], scores: Sequence[float], labels: Sequence[bool]
) -> list[tuple[float, int]]:
    """Return (:func:`auc`, items) of each problem that has right and wrong items."""
    items: dict[Hashable, list[int]] = defaultdict(list)
    for i, problem in enumerate(problems):
        items[problem].append(i)
    found = (
        (auc([scores[i] for i in group], [labels[i] for i in group]), len(group))
        for group in items.values()
    )
    return [(area, size) for area, size in found if area is not None]


def mean_auc(areas: Sequence[tuple[float, int]]) -> RankingAuc:
    """Return the mean of :func:`problem_aucs`, which may be those of several calls."""
    if not areas:
        return RankingAuc(None, 0, None)
    # An area tells no more than the items that it is over.
    size = sum(size for _, size in areas) / len(areas)
    interval = mean_interval([(area, 1) for area, _ in areas], size) if len(areas) > 1 else None
    return RankingAuc(math.fsum(area for area, _ in areas) / len(areas), len(areas), interval)


def mean_interval(
    groups: Sequence[tuple[float, float]], trials: float = 1
) -> tuple[float, float] | None:
    """Return a 95 % interval of the mean of values in [0, 1]; None for no values.

    It is Wilson's at the effective sample size that the variance between groups stands for, with a
    t quantile for few groups (Korn & Graubard 1998; Dean & Pagano 2015). Near 0 and 1 it stays
    inside [0, 1], and it has a width where every value is the same.

    ``groups`` are (sum, count) of the values of each independent group; of ``trials`` samples a
    value is made, on average, and none tells more than those.
    """
    n = math.fsum(count for _, count in groups)
    if not n:
        return None
    mean = math.fsum(total for total, _ in groups) / n
    size = effective_sample_size(groups, mean * (1 - mean), n * trials)
    low, high = wilson_interval(size * mean, size) or (0.0, 1.0)
    return low, high


def effective_sample_size(
    groups: Sequence[tuple[float, float]], variance: float, max_size: float
) -> float:
    """Return the number of independent values that tell as much as values in groups.

    ``groups`` are (sum, count) of the values of each independent group; ``variance`` is of one
    value, were all independent, and ``most`` the result at most.
    """
    if variance <= 0 or len(groups) < 2:
        # No variance to be seen: only the groups are known to be independent.
        return float(len(groups))
    from scipy.special import stdtrit

    n = math.fsum(count for _, count in groups)
    mean = math.fsum(total for total, _ in groups) / n
    residuals = math.fsum((total - mean * count) ** 2 for total, count in groups)
    between = len(groups) / (len(groups) - 1) * residuals / n**2
    size = variance / between if between > 0 else max_size
    return float(min(size, max_size) * (Z95 / stdtrit(len(groups) - 1, 0.975)) ** 2)


def wilson_interval(successes: float, n: float, z: float = Z95) -> list[float] | None:
    """Return Wilson's score interval of a proportion (Wilson 1927), or None for n = 0.

    ``n`` may be an effective sample size, which is no whole number.
    """
    if not n:
        return None
    p, scale = successes / n, 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return [round(max(0.0, centre - half), 6), round(min(1.0, centre + half), 6)]


def clustered_interval(clusters: Sequence[tuple[int, int]], z: float = Z95) -> list[float] | None:
    """Return the normal interval of a ratio of sums over (successes, n) clusters.

    The variance is the linearised (cluster-robust) one, with the G / (G - 1) correction; None for
    fewer than two clusters. Where all are alike it is 0, which so many clusters cannot show: the
    interval is Wilson's, of that many.
    """
    total, groups = sum(n for _, n in clusters), len(clusters)
    if groups < 2:
        return None
    p = sum(right for right, _ in clusters) / total
    residuals = sum((right - p * n) ** 2 for right, n in clusters)
    if residuals < 1e-9:
        return wilson_interval(p * groups, groups, z)
    half = z * math.sqrt(groups / (groups - 1) * residuals) / total
    return [round(max(0.0, p - half), 6), round(min(1.0, p + half), 6)]
