"""Read the full solutions of some problems of a sealed dataset."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fsdpo_data.core.entities import Solution
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import config_columns, scan_rows


def read_solution_rows(root: Path, problem_ids: Collection[str]) -> dict[str, list[Solution]]:
    """Return the solutions of problems in the order of their sample indices, by problem id."""
    names = [column.name for column in config_columns("solutions")]
    rows = scan_rows("solutions", read_manifest(root).config_paths(root, "solutions"))
    selected = rows.filter(pl.col("problem_id").is_in(list(set(problem_ids)))).select(names)
    solutions: dict[str, list[Solution]] = {}
    for row in collect_rows(selected).sort("problem_id", "sample_index").iter_rows(named=True):
        solutions.setdefault(row["problem_id"], []).append(Solution(**row))
    return solutions
