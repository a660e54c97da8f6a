"""Counts for the text plots of cards and pages."""

from __future__ import annotations

from fsdpo_cards.bars import label_tenths

from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows


def count_tenths(rows: pl.LazyFrame, value: pl.Expr) -> list[tuple[str, int]]:
    """Count numbers between -1 and 1 by tenths, from the first to the last non-empty tenth."""
    # A tenth includes its lower bound. The small offset keeps 0.3 in its tenth despite rounding.
    tenths = (value * 10 + 1e-6).floor().clip(-10, 9).cast(pl.Int32)
    return label_tenths(count_values(rows, tenths))


def count_values(rows: pl.LazyFrame, value: pl.Expr) -> list[tuple[int, int]]:
    """Return the numbers that a value takes, each with its number of rows."""
    counts = collect_rows(rows.select(value=value).drop_nulls().group_by("value").agg(pl.len()))
    return [(int(number), int(count)) for number, count in counts.iter_rows()]
