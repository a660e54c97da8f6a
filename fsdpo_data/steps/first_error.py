"""The first wrong step of a solution, and how well it is found, as in ProcessBench.

A labeller with scores calls a step wrong if its score is below a threshold. ProcessBench (Zheng et
al. 2024) measures two accuracies: on solutions with an error, and on solutions without one. F1 is
their harmonic mean, and the threshold is the score with the highest F1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

RIGHT_STEP_LABEL = 0.5  #: Smallest label of a right step, where a step is either right or wrong.
NO_ERROR = -1  #: First error of a solution without a wrong step.
MAX_CANDIDATES = 200  #: Maximum number of thresholds to try; they are quantiles of the scores.


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


def threshold_candidates(scores: Iterable[Sequence[float] | None]) -> list[float]:
    """Return quantiles of the scores of all steps, in ascending order; 0.5 without scores.

    Args:
        scores: The scores of each solution; None for a solution that was not scored.
    """
    all_scores = sorted(score for solution_scores in scores for score in solution_scores or ())
    if not all_scores:
        return [0.5]
    n_quantiles = min(MAX_CANDIDATES, len(all_scores))
    return sorted({all_scores[len(all_scores) * i // n_quantiles] for i in range(n_quantiles)})
