"""What a set of pairs is like: problems used, margins, and the lengths of both sides.

Length is the classic trap of preference data: where the chosen side is longer on average, a policy
learns to be long. So both sides' lengths are always shown beside each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.nouns import FAILED
from fsdpo_data.core.rows import scan
from fsdpo_data.steps.rewards import aggregated

if TYPE_CHECKING:
    import polars as pl


def problem_counts(solutions: pl.LazyFrame) -> dict[str, int]:
    """Count problems by what their solutions' outcomes allow.

    Returns:
        ``problems``, ``too_easy`` (no incorrect solution), ``too_hard`` (no correct one). A
        problem with neither, because its gold cannot be read, is too hard.
    """
    import polars as pl

    outcome = pl.col("outcome")
    by_problem = solutions.group_by("problem_id").agg(
        right=(outcome == "correct").sum(),
        wrong=outcome.is_in(FAILED).sum(),
    )
    right, wrong = pl.col("right"), pl.col("wrong")
    counted = by_problem.select(
        problems=pl.len(),
        too_easy=((right > 0) & (wrong == 0)).sum(),
        too_hard=(right == 0).sum(),
    ).collect()
    return {name: int(value) for name, value in counted.row(0, named=True).items()}


def pair_statistics(
    pairs: Sequence[Path], solutions: Sequence[Path], aggregate: str
) -> dict[str, Any]:
    """Describe pairs from the files they and their solutions are in.

    Args:
        pairs: The files of the ``pairs`` config.
        solutions: The files of the ``solutions`` config.
        aggregate: The aggregate the pairs were ranked by; margins are differences of it.

    Returns:
        Plain values for the manifest; margins and lengths are over pairs. ``truncated`` solutions
        stopped on length and stand in no pair.
    """
    import polars as pl

    scanned = scan(solutions)
    every = scan(pairs)
    lengths = scanned.select(
        "solution_id", tokens=pl.col("n_tokens"), steps=pl.col("completions").list.len()
    )
    frame = every.select(
        "problem_id",
        "chosen_id",
        "rejected_id",
        margin=aggregated("chosen_rewards", aggregate) - aggregated("rejected_rewards", aggregate),
    )
    for side in ("chosen", "rejected"):
        told = lengths.rename({"tokens": f"{side}_tokens", "steps": f"{side}_steps"})
        frame = frame.join(told, left_on=f"{side}_id", right_on="solution_id")
    rows = frame.collect()
    longer = rows["chosen_tokens"].cast(pl.Int64) - rows["rejected_tokens"].cast(pl.Int64)
    return {
        "pairs": rows.height,
        "problems": {"used": rows["problem_id"].n_unique(), **problem_counts(scanned)},
        "solutions": {
            **{side: rows[f"{side}_id"].n_unique() for side in ("chosen", "rejected")},
            "truncated": int(
                scanned.select((pl.col("finish_reason") == "length").sum()).collect().item()
            ),
        },
        "margin": {
            "mean": _mean(rows["margin"]),
            "min": _rounded(rows["margin"].min()),
            "median": _rounded(rows["margin"].median()),
            "max": _rounded(rows["margin"].max()),
            "negative": int((rows["margin"] < 0).sum()),
        },
        "length": {
            **{
                f"{side}_{unit}": _mean(rows[f"{side}_{unit}"])
                for unit in ("tokens", "steps")
                for side in ("chosen", "rejected")
            },
            "chosen_longer": int((longer > 0).sum()),
            "chosen_shorter": int((longer < 0).sum()),
        },
    }


def _mean(values: pl.Series) -> float | None:
    return _rounded(values.mean())


def _rounded(value: Any) -> float | None:
    return None if value is None else round(float(value), 4)
