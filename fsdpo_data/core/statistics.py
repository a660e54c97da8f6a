"""AUCs of scores over all items and within problems, and 95 % confidence intervals."""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Z95 = 1.959964  #: Normal quantile of two-sided 95 % intervals.


@dataclass(frozen=True, slots=True)
class RankingAuc:
    """Mean AUC within problems, with its denominator and its uncertainty."""

    value: float | None  #: Mean over problems; None if no problem has right and wrong items.
    problems: int  #: Number of problems with right and wrong items.
    ci95: tuple[float, float] | None  #: 95 % interval over problems; None below two problems.


class ProblemAuc(NamedTuple):
    """AUC of the scores within one problem."""

    auc: float  #: Area under the ROC curve.
    items: int  #: Number of items of the problem.


class _SortedScores(NamedTuple):
    """Scores of right and of wrong items, each in ascending order."""

    right: list[float]
    wrong: list[float]


def auc(scores: Sequence[float], labels: Sequence[bool]) -> float | None:
    """Return the probability that a right item scores above a wrong one; ties count half.

    This is the Mann-Whitney statistic, equal to the area under the ROC curve. The result is None
    if all labels are equal, or if a score is NaN, which has no order.

    Args:
        scores: One score per item.
        labels: One label per item, True for a right item.
    """
    right_scores, wrong_scores = _split_scores(scores, labels)
    if not right_scores or not wrong_scores or any(map(math.isnan, scores)):
        return None
    wins = sum(
        bisect_left(wrong_scores, score) + bisect_right(wrong_scores, score)
        for score in right_scores
    )
    return wins / (2 * len(right_scores) * len(wrong_scores))


def _split_scores(scores: Sequence[float], labels: Sequence[bool]) -> _SortedScores:
    """Sort the scores, and split them into right and wrong items."""
    items = sorted(zip(scores, labels, strict=True))
    return _SortedScores(
        right=[score for score, is_right in items if is_right],
        wrong=[score for score, is_right in items if not is_right],
    )


def auc_interval(
    problems: Sequence[Hashable], scores: Sequence[float], labels: Sequence[bool]
) -> tuple[float, float] | None:
    """Return a 95 % interval of :func:`auc`, with problems as the independent units.

    The variance comes from clustered placements (Obuchowski 1997). The interval is Wilson's at the
    effective sample size, as in :func:`mean_interval`. It is None below two problems, or if all
    labels are equal.
    """
    result = auc(scores, labels)
    if result is None or len(set(problems)) < 2:
        return None
    right_scores, wrong_scores = _split_scores(scores, labels)
    deviations: dict[Hashable, float] = defaultdict(float)
    for problem, score, is_right in zip(problems, scores, labels, strict=True):
        opposite_scores = wrong_scores if is_right else right_scores
        rank = bisect_left(opposite_scores, score) + bisect_right(opposite_scores, score)
        fraction_below = rank / (2 * len(opposite_scores))
        placement = fraction_below if is_right else 1 - fraction_below
        side_size = len(right_scores) if is_right else len(wrong_scores)
        deviations[problem] += (placement - result) / side_size
    # One pseudo-value per problem: the variance of their mean is the clustered variance of the AUC.
    groups = [(result + len(deviations) * deviation, 1.0) for deviation in deviations.values()]
    size = effective_sample_size(groups, variance=result * (1 - result), max_size=len(labels))
    low, high = wilson_interval(size * result, size) or (0.0, 1.0)
    return low, high


def ranking_auc(
    problems: Sequence[Hashable], scores: Sequence[float], labels: Sequence[bool]
) -> RankingAuc:
    """Return the mean over problems of the AUC within each problem.

    Only comparisons within a problem count, so the difficulty of problems has no effect.
    """
    return mean_auc(problem_aucs(problems, scores, labels))


def problem_aucs(
    problems: Sequence[Hashable], scores: Sequence[float], labels: Sequence[bool]
) -> list[ProblemAuc]:
    """Return the AUC of each problem that has right and wrong items."""
    indices_by_problem: dict[Hashable, list[int]] = defaultdict(list)
    for index, problem in enumerate(problems):
        indices_by_problem[problem].append(index)
    aucs = []
    for indices in indices_by_problem.values():
        result = auc([scores[i] for i in indices], [labels[i] for i in indices])
        if result is not None:
            aucs.append(ProblemAuc(auc=result, items=len(indices)))
    return aucs


def mean_auc(aucs: Sequence[ProblemAuc]) -> RankingAuc:
    """Return the mean of the results of one or several calls of :func:`problem_aucs`."""
    if not aucs:
        return RankingAuc(value=None, problems=0, ci95=None)
    # The AUC of a problem has at most the information of the items of the problem.
    items_per_problem = sum(result.items for result in aucs) / len(aucs)
    interval = None
    if len(aucs) > 1:
        interval = mean_interval([(result.auc, 1) for result in aucs], items_per_problem)
    mean = math.fsum(result.auc for result in aucs) / len(aucs)
    return RankingAuc(value=mean, problems=len(aucs), ci95=interval)


def mean_interval(
    groups: Sequence[tuple[float, float]], trials: float = 1
) -> tuple[float, float] | None:
    """Return a 95 % interval of the mean of values in [0, 1]; None without values.

    The interval is Wilson's at the effective sample size. The variance between groups gives this
    size, with a t quantile for few groups (Korn & Graubard 1998; Dean & Pagano 2015). The interval
    stays inside [0, 1], and has a positive width even if all values are equal.

    Near 0 and 1, the mean depends on few groups, and most samples contain none of them. The
    variance that such a sample shows is too small. One imagined group at the opposite end of [0, 1]
    corrects the variance, as imagined counts do for a proportion (Agresti & Coull 1998).
    ``benchmarks/intervals/interval_coverage.py`` measures how often the interval contains the mean.

    Args:
        groups: (sum, count) of the values of each independent group.
        trials: Average number of items behind each value, such as the solutions of a problem. The
            effective sample size is at most the number of all items.
    """
    n = math.fsum(count for _, count in groups)
    if not n:
        return None
    mean = math.fsum(total for total, _ in groups) / n
    imagined_count = n / len(groups)
    imagined_total = 0.0 if mean > 0.5 else imagined_count
    extended_mean = (n * mean + imagined_total) / (n + imagined_count)
    extended_size = effective_sample_size(
        [*groups, (imagined_total, imagined_count)],
        variance=extended_mean * (1 - extended_mean),
        max_size=n * trials,
    )
    size = extended_size * n / (n + imagined_count)
    low, high = wilson_interval(size * mean, size) or (0.0, 1.0)
    return low, high


def effective_sample_size(
    groups: Sequence[tuple[float, float]], variance: float, max_size: float
) -> float:
    """Return the number of independent values with the same information as grouped values.

    Args:
        groups: (sum, count) of the values of each independent group.
        variance: Variance of one value if all values were independent.
        max_size: Upper limit of the result, before the t correction.
    """
    if variance <= 0 or len(groups) < 2:
        # Without visible variance, only the groups are certain to be independent.
        return float(len(groups))
    from scipy.special import stdtrit

    n = math.fsum(count for _, count in groups)
    mean = math.fsum(total for total, _ in groups) / n
    residuals = math.fsum((total - mean * count) ** 2 for total, count in groups)
    mean_variance = len(groups) / (len(groups) - 1) * residuals / n**2
    size = variance / mean_variance if mean_variance > 0 else max_size
    t_quantile = stdtrit(len(groups) - 1, 0.975)
    return float(min(size, max_size) * (Z95 / t_quantile) ** 2)


def wilson_interval(successes: float, n: float, z: float = Z95) -> list[float] | None:
    """Return Wilson's score interval of a proportion (Wilson 1927); None for n = 0.

    ``n`` may be a fractional effective sample size.
    """
    if not n:
        return None
    p = successes / n
    scale = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half_width = z / scale * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = round(max(0.0, centre - half_width), 6)
    high = round(min(1.0, centre + half_width), 6)
    return [low, high]
