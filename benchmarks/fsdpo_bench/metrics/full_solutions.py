"""Read full solutions of a sealed dataset, of which the arrays have only some columns."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fsdpo_data.core.entities import Solution
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import config_columns, scan_rows


def read_full_solutions(root: Path, is_selected: pl.Expr) -> list[Solution]:
    """Return the solutions that meet a condition on their columns, in the order of the files."""
    names = [column.name for column in config_columns("solutions")]
    rows = scan_rows("solutions", read_manifest(root).config_paths(root, "solutions"))
    selected = collect_rows(rows.filter(is_selected).select(names))
    return [Solution.from_row(row) for row in selected.iter_rows(named=True)]


def read_problem_solutions(root: Path, problem_ids: Collection[str]) -> dict[str, list[Solution]]:
    """Return the solutions of problems in the order of their sample indices, by problem id."""
    solutions: dict[str, list[Solution]] = {}
    selected = read_full_solutions(root, pl.col("problem_id").is_in(list(set(problem_ids))))
    for solution in sorted(selected, key=lambda solution: solution.sample_index):
        solutions.setdefault(solution.problem_id, []).append(solution)
    return solutions
