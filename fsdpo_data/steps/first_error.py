"""The first wrong step of a solution, and how well it is found, as in ProcessBench.

A labeller with scores calls a step wrong if its score is below a threshold. ProcessBench (Zheng et
al. 2024) measures two accuracies: on solutions with an error, and on solutions without one. F1 is
their harmonic mean, and the threshold is the score with the highest F1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

RIGHT_STEP_LABEL = 0.5  #: Smallest label of a right step, where a step is either right or wrong.
NO_ERROR = -1  #: First error of a solution without a wrong step.
MAX_CANDIDATES = 200  #: Maximum number of thresholds to try; they are quantiles of the scores.

#: The scores of the steps of each solution; None for a solution that was not scored.
SolutionScores: TypeAlias = Sequence[Sequence[float] | None]


def find_first_wrong(is_wrong: Iterable[bool]) -> int:
    """Return the index of the first wrong step, or ``NO_ERROR``."""
    return next((index for index, is_error in enumerate(is_wrong) if is_error), NO_ERROR)


def find_first_below(scores: Iterable[float], threshold: float) -> int:
    """Return the index of the first step with a score below ``threshold``, or ``NO_ERROR``."""
    return find_first_wrong(score < threshold for score in scores)


def harmonic_mean(first: float, second: float) -> float:
    """Return the harmonic mean of two fractions; 0 if both are 0."""
    total = first + second
    return 2 * first * second / total if total else 0.0


def find_hits(
    scores: SolutionScores, first_errors: Sequence[int], threshold: float
) -> tuple[list[bool], list[bool]]:
    """Return whether the first step below a threshold is the first wrong step.

    Args:
        scores: The scores of each solution. A solution that was not scored is no hit.
        first_errors: Index of the first wrong step of each solution, or ``NO_ERROR``.
        threshold: The threshold.

    Returns:
        The hits of the solutions with an error, and of the solutions without one.
    """
    with_error: list[bool] = []
    without_error: list[bool] = []
    for solution_scores, first_error in zip(scores, first_errors, strict=True):
        is_hit = (
            solution_scores is not None
            and find_first_below(solution_scores, threshold) == first_error
        )
        (without_error if first_error == NO_ERROR else with_error).append(is_hit)
    return with_error, without_error


def f1_of_hits(with_error: Sequence[bool], without_error: Sequence[bool]) -> float | None:
    """Return the harmonic mean of two accuracies; None without solutions of one kind."""
    if not with_error or not without_error:
        return None
    return harmonic_mean(sum(with_error) / len(with_error), sum(without_error) / len(without_error))


def best_threshold(scores: SolutionScores, first_errors: Sequence[int]) -> float:
    """Return the quantile of the scores with the highest F1; the lowest of equal ones.

    Args:
        scores: The scores of each solution.
        first_errors: Index of the first wrong step of each solution, or ``NO_ERROR``.
    """
    return max(
        threshold_candidates(scores),
        key=lambda threshold: f1_of_hits(*find_hits(scores, first_errors, threshold)) or 0.0,
    )


def threshold_candidates(scores: SolutionScores) -> list[float]:
    """Return quantiles of the scores of all steps, in ascending order; 0.5 without scores."""
    all_scores = sorted(score for solution_scores in scores for score in solution_scores or ())
    if not all_scores:
        return [0.5]
    n_quantiles = min(MAX_CANDIDATES, len(all_scores))
    return sorted({all_scores[len(all_scores) * i // n_quantiles] for i in range(n_quantiles)})
