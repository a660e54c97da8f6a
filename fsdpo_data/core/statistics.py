"""How well scores tell right from wrong: areas under ROC curves, over all items and by problem."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ranking:
    """An area under the curve with its denominator and its uncertainty.

    Attributes:
        value: Mean over problems; None if there is none with right and wrong items.
        problems: Problems with right and wrong items.
        ci95: Normal 95 % interval over problems; None for fewer than two.
    """

    value: float | None
    problems: int
    ci95: tuple[float, float] | None


def auc(scores: Sequence[float], right: Sequence[bool]) -> float | None:
    """Return the chance that a right item scores above a wrong one; a tie counts half.

    This is the Mann-Whitney statistic. None if all items are of one kind.
    """
    n_right = sum(right)
    n_wrong = len(right) - n_right
    if not n_right or not n_wrong:
        return None
    order = sorted(range(len(scores)), key=scores.__getitem__)
    wins, wrong_below, at = 0.0, 0, 0
    while at < len(order):
        end = at
        while end < len(order) and scores[order[end]] == scores[order[at]]:
            end += 1
        tied_right = sum(right[i] for i in order[at:end])
        tied_wrong = end - at - tied_right
        wins += tied_right * (wrong_below + tied_wrong / 2)
        wrong_below += tied_wrong
        at = end
    return wins / (n_right * n_wrong)


def ranking_auc(
    problems: Sequence[Hashable], scores: Sequence[float], right: Sequence[bool]
) -> Ranking:
    """Return the mean over problems of :func:`auc` among the items of each.

    Scores need to rank within a problem only; how hard problems are does not come in.
    """
    items: dict[Hashable, list[int]] = defaultdict(list)
    for i, problem in enumerate(problems):
        items[problem].append(i)
    found = (auc([scores[i] for i in group], [right[i] for i in group]) for group in items.values())
    areas = [area for area in found if area is not None]
    if not areas:
        return Ranking(None, 0, None)
    mean, interval = mean_interval(areas)
    return Ranking(mean, len(areas), interval)


def mean_interval(
    values: Sequence[float], z: float = 1.959964
) -> tuple[float, tuple[float, float] | None]:
    """Return the mean and its normal 95 % interval, None for fewer than two values."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    half = z * math.sqrt(variance / len(values))
    return mean, (mean - half, mean + half)


def wilson_interval(successes: float, n: float, z: float = 1.959964) -> list[float] | None:
    """Return Wilson's score interval of a proportion (Wilson 1927), or None for n = 0.

    ``n`` may be an effective sample size, which is no whole number.
    """
    if not n:
        return None
    p, scale = successes / n, 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return [round(max(0.0, centre - half), 6), round(min(1.0, centre + half), 6)]


def clustered_interval(
    clusters: Sequence[tuple[int, int]], z: float = 1.959964
) -> list[float] | None:
    """Return the normal interval of a ratio of sums over (successes, n) clusters.

    The variance is the linearised (cluster-robust) one, with the G / (G - 1) correction; None for
    fewer than two clusters.
    """
    total, groups = sum(n for _, n in clusters), len(clusters)
    if groups < 2:
        return None
    p = sum(right for right, _ in clusters) / total
    residuals = sum((right - p * n) ** 2 for right, n in clusters)
    half = z * math.sqrt(groups / (groups - 1) * residuals) / total
    return [round(max(0.0, p - half), 6), round(min(1.0, p + half), 6)]
