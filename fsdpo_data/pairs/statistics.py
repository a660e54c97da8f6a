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
from fsdpo_data.pairs.lookup import SIDES, with_solutions
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
    ).collect(engine="streaming")
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

    numbers = pl.concat(
        [
            frame.select(
                problem=pl.col("problem_id").hash(),
                chosen=pl.col("chosen_id").hash(),
                rejected=pl.col("rejected_id").hash(),
                margin=aggregated("chosen_rewards", aggregate)
                - aggregated("rejected_rewards", aggregate),
                **{f"{side}_tokens": pl.col(f"{side}_n_tokens") for side in SIDES},
                **{f"{side}_steps": pl.col(f"{side}_steps").list.len() for side in SIDES},
            )
            for frame in with_solutions(pairs, solutions, ["n_tokens"])
        ]
    )
    truncated = scan(solutions).select((pl.col("finish_reason") == "length").sum())
    longer = numbers["chosen_tokens"].cast(pl.Int64) - numbers["rejected_tokens"].cast(pl.Int64)
    return {
        "pairs": numbers.height,
        "problems": {"used": numbers["problem"].n_unique(), **problem_counts(scan(solutions))},
        "solutions": {
            **{side: numbers[side].n_unique() for side in SIDES},
            "truncated": int(truncated.collect(engine="streaming").item()),
        },
        "margin": {
            "mean": _mean(numbers["margin"]),
            "min": _rounded(numbers["margin"].min()),
            "median": _rounded(numbers["margin"].median()),
            "max": _rounded(numbers["margin"].max()),
            "negative": int((numbers["margin"] < 0).sum()),
        },
        "length": {
            **{
                f"{side}_{unit}": _mean(numbers[f"{side}_{unit}"])
                for unit in ("tokens", "steps")
                for side in SIDES
            },
            "chosen_longer": int((longer > 0).sum()),
            "chosen_shorter": int((longer < 0).sum()),
        },
    }


def _mean(values: pl.Series) -> float | None:
    return _rounded(values.mean())


def _rounded(value: Any) -> float | None:
    return None if value is None else round(float(value), 4)
