"""Scan files of pairs, and of the solutions in them; other columns of the files do not matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from fsdpo_data.core.entities import Pair
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import read_column_names, scan_parquet


def scan_pairs(files: Sequence[Path]) -> pl.LazyFrame:
    """Scan pairs with the columns of :class:`Pair` alone."""
    rewards = pl.List(pl.Float32)
    nullable = {"chosen_rewards": rewards, "rejected_rewards": rewards}
    return _with_nulls(files, "pairs", nullable).select(item.name for item in fields(Pair))


def scan_solutions(files: Sequence[Path]) -> pl.LazyFrame:
    """Scan solutions; columns that a file may lack are null then."""
    nullable = {
        "n_tokens": pl.Int32,
        "step_rewards": pl.List(pl.Float32),
        "thinking_closed": pl.Boolean,
    }
    return _with_nulls(files, "solutions", nullable)


def _with_nulls(files: Sequence[Path], config: str, nullable: Mapping[str, Any]) -> pl.LazyFrame:
    """Scan the files of a config, and add the nullable columns that they lack."""
    names = read_column_names(files, config)
    return scan_parquet(files).with_columns(
        pl.lit(None, dtype=data_type).alias(name)
        for name, data_type in nullable.items()
        if name not in names
    )
