"""The distributions of a dataset, as plots made of text."""

from __future__ import annotations

from pathlib import Path

from fsdpo_cards.bars import bars, histogram, shares

from fsdpo_data.core.lazy import pl
from fsdpo_data.core.rows import scan
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.steps.rewards import aggregated


def plots(root: Path, manifest: Manifest) -> dict[str, str]:
    """Return the distributions that the dataset has, by title."""
    solutions = scan(manifest.paths(root, "solutions"))
    labels, steps = manifest.labels, pl.col("completions").list.len()
    kinds = [kind for kind in ("positive", "negative", "unlabelled") if kind in labels]
    drawn = {
        "Solutions by outcome": bars(list(manifest.outcomes.items())),
        "Steps by label": bars([(kind, labels[kind]) for kind in kinds]),
        "Solutions by number of steps": bars(histogram(_counts(solutions, steps))),
        "Solutions by number of tokens": bars(histogram(_counts(solutions, pl.col("n_tokens")))),
    }
    if manifest.rollouts:
        counts = pl.col("rollouts").struct
        each = solutions.select("rollouts").explode("rollouts").drop_nulls()
        share = counts.field("n_correct") / counts.field("n")
        drawn["Steps by share of continuations that end right"] = _shares(each, share)
    if manifest.rewards:
        right, rewards = pl.col("outcome") == "correct", pl.col("step_rewards")
        for name, which in (("correct", right), ("other", ~right)):
            each = solutions.filter(which).select(rewards).explode("step_rewards")
            drawn[f"Step rewards in {name} solutions"] = _shares(each, rewards)
    if manifest.spec.pair and manifest.pairs and manifest.pairs.margin:
        how = manifest.spec.pair.aggregate
        margin = aggregated("chosen_rewards", how) - aggregated("rejected_rewards", how)
        title = f"Pairs by margin ({how} reward of chosen less rejected)"
        drawn[title] = _shares(scan(manifest.paths(root, "pairs")), margin)
    return drawn


def _shares(rows: pl.LazyFrame, value: pl.Expr) -> str:
    """Draw numbers between -1 and 1 in tenths, from the first tenth that has any to the last."""
    # A tenth is closed below; the nudge keeps 0.3, which floats hold as a little less, in its own.
    tenths = (value * 10 + 1e-6).floor().clip(-10, 9).cast(pl.Int32)
    return bars(shares(_counts(rows, tenths)))


def _counts(rows: pl.LazyFrame, value: pl.Expr) -> list[tuple[int, int]]:
    counted = rows.select(value=value).drop_nulls().group_by("value").agg(pl.len()).collect()
    return [(int(each), int(count)) for each, count in counted.iter_rows()]
