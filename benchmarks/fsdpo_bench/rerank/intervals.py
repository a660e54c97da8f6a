"""Intervals and p-values of means over problems, and the correction for several comparisons."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_BOOTSTRAP_DRAWS = 2_000  #: Number of resampled sets of problems.
_QUANTILES = (0.025, 0.975)  #: Bounds of a 95 % interval.


@dataclass(frozen=True, slots=True)
class MeanWithInterval:
    """A mean over problems with its 95 % interval."""

    value: float  #: The mean.
    ci95: tuple[float, float]  #: Percentile interval over resampled problems.
    #: Two-sided p-value of the mean 0, from the normal distribution; from the signs if all values
    #: are equal.
    p_value: float


class Bootstrap:
    """Resampled sets of problems; all means share them."""

    def __init__(self, n_problems: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        counts = rng.multinomial(n_problems, [1 / n_problems] * n_problems, _BOOTSTRAP_DRAWS)
        self._weights = counts / n_problems

    def mean(self, values: np.ndarray) -> MeanWithInterval:
        """Return the mean of one value per problem."""
        draws = self._weights @ values
        value = float(values.mean())
        low, high = (float(bound) for bound in np.quantile(draws, _QUANTILES))
        error = float(draws.std())
        if error > 0:
            p_value = math.erfc(abs(value) / error / math.sqrt(2))
        else:  # all values are equal, so only their common sign counts
            p_value = 2.0 ** (1 - len(values)) if value else 1.0
        return MeanWithInterval(value, (low, high), p_value)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values corrected for their number (Holm 1979), in the same order."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
