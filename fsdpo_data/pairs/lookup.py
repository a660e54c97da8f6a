"""Pairs beside what their solutions say, a file at a time: no dataset is too large for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fsdpo_data.core.lazy import pl
from fsdpo_data.core.rows import scan

SIDES = ("chosen", "rejected")


def with_solutions(
    pairs: Sequence[Path],
    solutions: Sequence[Path],
    columns: Sequence[str],
    sides: Sequence[str] = SIDES,
) -> Iterator[pl.DataFrame]:
    """Yield the pairs of each file with columns of the solutions they name, in their order.

    Column ``answer`` comes as ``chosen_answer`` and so on, null where there is no such solution.

    The solutions of a file of pairs are in the file of the same place, where stages put them, so
    that one is looked into first; the rest of the dataset only for what is not there.
    """
    aligned = len(pairs) == len(solutions)
    for place, file in enumerate(pairs):
        frame = scan([file]).collect()
        wanted = pl.concat([frame[f"{side}_id"] for side in sides]).unique()
        found = _named(solutions[place : place + 1] if aligned else solutions, columns, wanted)
        absent = wanted.filter(~wanted.is_in(found["solution_id"].implode()))
        if aligned and len(absent):
            found = pl.concat([found, _named(solutions, columns, absent)])
        for side in sides:
            named = found.select(pl.all().name.prefix(f"{side}_"))
            frame = frame.join(
                named,
                left_on=f"{side}_id",
                right_on=f"{side}_solution_id",
                how="left",
                maintain_order="left",
            )
        yield frame


def _named(files: Sequence[Path], columns: Sequence[str], ids: pl.Series) -> pl.DataFrame:
    rows = scan(files).filter(pl.col("solution_id").is_in(ids.implode()))
    return rows.select("solution_id", *columns).collect()
