"""Read the problems of a sealed dataset."""

from collections.abc import Sequence
from pathlib import Path

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.schema import parse_metadata, scan_rows


def read_problems(files: Sequence[Path]) -> dict[str, Problem]:
    """Return the problems in files of a sealed dataset, by problem id."""
    problems = {}
    for row in collect_rows(scan_rows("problems", files)).iter_rows(named=True):
        problem_id = row.pop("problem_id")
        metadata = parse_metadata(problem_id, row.pop("metadata"))
        problems[problem_id] = Problem(**row, metadata=metadata)
    return problems
