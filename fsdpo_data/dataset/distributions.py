"""The distributions of a dataset, as plots made of text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fsdpo_cards.bars import bars, histogram, shares

from fsdpo_data.core.rows import scan
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.steps.rewards import aggregated

if TYPE_CHECKING:
    import polars as pl


def plots(root: Path, manifest: Manifest) -> dict[str, str]:
    """Return the distributions that the dataset has, by title."""
    import polars as pl

    solutions = scan(manifest.paths(root, "solutions"))
    drawn = _solutions(solutions, manifest)
    if manifest.rollouts:
        drawn["Steps by share of continuations that end right"] = _rollouts(solutions)
    if manifest.rewards:
        right = pl.col("outcome") == "correct"
        drawn["Step rewards in correct solutions"] = _rewards(solutions.filter(right))
        drawn["Step rewards in other solutions"] = _rewards(solutions.filter(~right))
    if manifest.spec.pair and manifest.pairs and manifest.pairs.margin:
        pairs, aggregate = scan(manifest.paths(root, "pairs")), manifest.spec.pair.aggregate
        drawn[f"Pairs by margin ({aggregate} reward of chosen less rejected)"] = _margins(
            pairs, aggregate
        )
    return drawn


def _solutions(solutions: pl.LazyFrame, manifest: Manifest) -> dict[str, str]:
    import polars as pl

    labels, steps = manifest.labels, pl.col("completions").list.len()
    kinds = [kind for kind in ("positive", "negative", "unlabelled") if kind in labels]
    return {
        "Solutions by outcome": bars(list(manifest.outcomes.items())),
        "Steps by label": bars([(kind, labels[kind]) for kind in kinds]),
        "Solutions by number of steps": bars(histogram(_counts(solutions, steps))),
        "Solutions by number of tokens": bars(histogram(_counts(solutions, pl.col("n_tokens")))),
    }


def _rollouts(solutions: pl.LazyFrame) -> str:
    import polars as pl

    counts = pl.col("rollouts").struct
    steps = solutions.select("rollouts").explode("rollouts").drop_nulls()
    return _shares(steps, counts.field("n_correct") / counts.field("n"))


def _rewards(solutions: pl.LazyFrame) -> str:
    import polars as pl

    return _shares(solutions.select("step_rewards").explode("step_rewards"), pl.col("step_rewards"))


def _margins(pairs: pl.LazyFrame, aggregate: str) -> str:
    sides = [aggregated(f"{side}_rewards", aggregate) for side in ("chosen", "rejected")]
    return _shares(pairs, sides[0] - sides[1])


def _shares(rows: pl.LazyFrame, value: pl.Expr) -> str:
    """Draw numbers between -1 and 1 in tenths, from the first tenth that has any to the last."""
    import polars as pl

    # A tenth is closed below; the nudge keeps 0.3, which floats hold as a little less, in its own.
    tenths = (value * 10 + 1e-6).floor().clip(-10, 9).cast(pl.Int32)
    return bars(shares(_counts(rows, tenths)))


def _counts(rows: pl.LazyFrame, value: pl.Expr) -> list[tuple[int, int]]:
    import polars as pl

    counted = rows.select(value=value).drop_nulls().group_by("value").agg(pl.len()).collect()
    return [(int(each), int(count)) for each, count in counted.iter_rows()]
