"""The rows of ``pairs``, which repeat the texts, steps and rewards of both solutions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.schema import (
    arrow_schema,
    full_schema,
    plain_schema,
    scan_rows,
    unknown_columns,
)


def pairs_within(file: Path, pair_files: Sequence[Path]) -> pa.Table:
    """Return the pairs whose two solutions are in a file of solutions.

    Everything but the choice of the pairs comes from ``file``, such as the step rewards.

    Args:
        file: A file of solutions.
        pair_files: Files of pairs, also of solutions in other files.
    """
    all_pairs = scan_rows("pairs", pair_files)
    unknown = unknown_columns("pairs", all_pairs.collect_schema().names())
    pairs = all_pairs.select("chosen_id", "rejected_id", *unknown)
    rows = scan_rows("solutions", [file]).select("solution_id").with_row_index("row")
    for side in ("chosen", "rejected"):
        pairs = pairs.join(
            rows.rename({"row": side}),
            left_on=f"{side}_id",
            right_on="solution_id",
            maintain_order="left",
        )
    return join_pair_sides(file, pairs.select("chosen", "rejected", *unknown))


def count_broken_pairs(files: Sequence[Path], pair_files: Sequence[Path]) -> int:
    """Return the number of pairs with exactly one of their solutions in files of solutions.

    Args:
        files: Files of solutions.
        pair_files: Files of pairs.
    """
    solution_ids = collect_rows(scan_rows("solutions", files).select("solution_id"))["solution_id"]
    has_chosen, has_rejected = (
        pl.col(name).is_in(solution_ids.implode()) for name in ("chosen_id", "rejected_id")
    )
    is_broken = (has_chosen != has_rejected).sum()
    return int(collect_rows(scan_rows("pairs", pair_files).select(is_broken)).item())


def join_pair_sides(file: Path, pairs: pl.LazyFrame) -> pa.Table:
    """Return the rows of ``pairs`` with both sides.

    Args:
        file: A file of solutions.
        pairs: Columns ``chosen`` and ``rejected``, which are row numbers in this file, and unknown
            columns of pairs, which are kept.
    """
    sides = (
        scan_rows("solutions", [file])
        .select(
            "problem_id",
            "prompt",
            id="solution_id",
            text=pl.col("completions").list.join(""),
            steps="completions",
            rewards="step_rewards",
        )
        .with_row_index("row")
    )
    unknown = [
        name for name in pairs.collect_schema().names() if name not in ("chosen", "rejected")
    ]
    pairs = pairs.rename({"chosen": "chosen row", "rejected": "rejected row"})
    pairs = pairs.with_row_index("pair row")  # no user's column has such a name
    for side in ("chosen", "rejected"):
        columns = {name: f"{side}_{name}" for name in ("id", "steps", "rewards")}
        side_columns = sides.rename({**columns, "text": side})
        if side == "rejected":
            side_columns = side_columns.drop("problem_id", "prompt")
        pairs = pairs.join(side_columns, left_on=f"{side} row", right_on="row")
    table = collect_rows(
        pairs.sort("pair row").select(*arrow_schema("pairs").names, *unknown)
    ).to_arrow()
    return table.cast(full_schema("pairs", plain_schema(table.schema)))
