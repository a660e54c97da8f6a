"""Read full solutions of a sealed dataset, of which the arrays have only some columns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from fsdpo_data.core.entities import Problem, Solution
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.problem_rows import read_problems
from fsdpo_data.dataset.schema import config_columns, scan_rows


@dataclass(frozen=True, slots=True)
class SolvedProblem:
    """A problem with one of its solutions."""

    problem: Problem  #: The problem.
    solution: Solution  #: The solution.


def read_solved_problems(root: Path, is_selected: pl.Expr) -> list[SolvedProblem]:
    """Return solutions with their problems, in the order of the files.

    Args:
        root: The dataset.
        is_selected: Condition on the columns of a solution.
    """
    manifest = read_manifest(root)
    problems = read_problems(manifest.config_paths(root, "problems"))
    return [
        SolvedProblem(problems[solution.problem_id], solution)
        for solution in _read_selected(root, is_selected)
    ]


def read_solution_rows(root: Path, problem_ids: Collection[str]) -> dict[str, list[Solution]]:
    """Return the solutions of problems in the order of their sample indices, by problem id."""
    solutions: dict[str, list[Solution]] = {}
    selected = _read_selected(root, pl.col("problem_id").is_in(list(set(problem_ids))))
    for solution in sorted(selected, key=lambda solution: solution.sample_index):
        solutions.setdefault(solution.problem_id, []).append(solution)
    return solutions


def _read_selected(root: Path, is_selected: pl.Expr) -> list[Solution]:
    """Return some solutions in the order of the files."""
    names = [column.name for column in config_columns("solutions")]
    rows = scan_rows("solutions", read_manifest(root).config_paths(root, "solutions"))
    selected = collect_rows(rows.filter(is_selected).select(names))
    return [Solution(**row) for row in selected.iter_rows(named=True)]
