"""Accuracies of policies on the same problems, and intervals of what separates them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from fsdpo_data.core.rows import scan
from fsdpo_data.dataset.manifest import read_manifest

RESAMPLES = 10_000


@dataclass(frozen=True)
class Measured:
    """One policy on one split, a value for each problem, in the order of their ids.

    Attributes:
        sampled: Share of the samples that are correct.
        greedy: Whether the greedy solution is; None where that was not asked.
    """

    sampled: np.ndarray
    greedy: np.ndarray | None = None

    @classmethod
    def read(cls, sampled: Path, greedy: Path | None = None) -> Measured:
        """Read the datasets that a policy's samples and greedy solutions were sealed in."""
        return cls(_shares(sampled), None if greedy is None else _shares(greedy))


def _shares(dataset: Path) -> np.ndarray:
    solutions = scan(read_manifest(dataset).paths(dataset, "solutions"))
    correct = (pl.col("outcome") == "correct").mean()
    by_problem = solutions.group_by("problem_id").agg(correct=correct).sort("problem_id")
    return by_problem.collect()["correct"].to_numpy()


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval."""

    value: float
    low: float
    high: float


def estimate(value_SP: np.ndarray, seed: int = 0) -> Estimate:
    """Return the mean over training seeds and problems, in points, with a bootstrap interval.

    Seeds and problems are drawn anew independently of each other (Owen 2007, *The pigeonhole
    bootstrap*), since every seed met the same problems; that is on the wide side. One seed says
    nothing about others: the interval is then over problems alone.

    Args:
        value_SP: A value for each seed and problem.
        seed: Of the draws.
    """
    rng = np.random.default_rng(seed)
    seeds, problems = value_SP.shape
    drawn_RP = rng.multinomial(problems, np.full(problems, 1 / problems), size=RESAMPLES) / problems
    drawn_RS = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES) / seeds
    means_R = ((drawn_RP @ value_SP.T) * drawn_RS).sum(-1)
    low, high = np.quantile(means_R, (0.025, 0.975))
    return Estimate(100 * float(value_SP.mean()), 100 * float(low), 100 * float(high))


def stacked(runs: Sequence[Measured], what: str) -> np.ndarray:
    """Return a value for each run and problem; ``what`` is ``sampled`` or ``greedy``."""
    return np.stack([getattr(run, what) for run in runs])


def against(runs: Sequence[Measured], base: Measured, what: str) -> Estimate:
    """Return by how many points runs are ahead of ``base``, problem by problem."""
    return estimate(stacked(runs, what) - getattr(base, what))
