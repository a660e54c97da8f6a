"""What must hold for the ``pairs`` of a dataset, whose solutions are valid already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdpo_data.pair_stats import pair_statistics

if TYPE_CHECKING:
    import polars as pl

#: Broken rows named in a message; the rest are counted.
SHOWN = 3


def broken_pairs(root: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for every invariant of the pairs that is broken."""
    import polars as pl

    pairs = _with_solutions(root)
    wrong_sides = (pl.col("chosen_outcome") != "correct") | (
        ~pl.col("rejected_outcome").is_in(["incorrect", "no_answer"])
    )
    rules = {
        "join a solution to itself": pl.col("chosen_id") == pl.col("rejected_id"),
        "occur more than once": pl.struct("chosen_id", "rejected_id").is_duplicated(),
        **_side_rules("chosen"),
        **_side_rules("rejected"),
    }
    if manifest["spec"]["pair"]["require_outcome"]:
        rules["prefer a solution that is not correct, or to one that is not incorrect"] = (
            wrong_sides
        )
    found = False
    for rule, broken in rules.items():
        ids = pairs.filter(broken).select("chosen_id", "rejected_id").collect()
        if ids.height:
            found = True
            yield f"{ids.height} pairs {rule}: {_some(ids)}"
    if not found:
        yield from _statistics(root, manifest)


def _side_rules(side: str) -> dict[str, pl.Expr]:
    """Return what is broken if the pair does not say the same as the solution it names."""
    import polars as pl

    own, told = pl.col(f"{side}_problem"), pl.col("problem_id")
    steps, rewards = pl.col(f"{side}_steps"), pl.col(f"{side}_rewards")
    return {
        f"name a {side} solution that is not here": own.is_null(),
        f"name a {side} solution of another problem": own != told,
        f"have a {side} text that its steps do not join to": (pl.col(side) != steps.list.join("")),
        f"have {side} steps that are not those of the solution": (
            steps != pl.col(f"{side}_completions")
        ),
        f"have {side} rewards that are not those of the solution": ~rewards.eq_missing(
            pl.col(f"{side}_step_rewards")
        ),
    }


def _with_solutions(root: Path) -> pl.LazyFrame:
    """Join the pairs with what their solutions say."""
    import polars as pl

    pairs = pl.scan_parquet(root / "pairs" / "*.parquet")
    solutions = pl.scan_parquet(root / "solutions" / "*.parquet").select(
        "solution_id", "completions", "step_rewards", "outcome", problem="problem_id"
    )
    for side in ("chosen", "rejected"):
        named = solutions.select(pl.all().name.prefix(f"{side}_"))
        pairs = pairs.join(named, left_on=f"{side}_id", right_on=f"{side}_solution_id", how="left")
    return pairs


def _statistics(root: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    pairs, solutions = (sorted((root / name).glob("*.parquet")) for name in ("pairs", "solutions"))
    counted = pair_statistics(pairs, solutions, manifest["spec"]["pair"]["aggregate"])
    if counted != manifest["pairs"]:
        yield f"the pairs are {counted}, the manifest says {manifest['pairs']}"


def _some(ids: pl.DataFrame) -> str:
    shown = ", ".join(" > ".join(row) for row in ids.head(SHOWN).iter_rows())
    return shown + (f" and {ids.height - SHOWN} more" if ids.height > SHOWN else "")
