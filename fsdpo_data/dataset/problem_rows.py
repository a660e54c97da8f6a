"""Read the problems of a sealed dataset."""

from collections.abc import Sequence
from pathlib import Path

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.schema import parse_metadata, scan_rows


def read_problems(files: Sequence[Path]) -> dict[str, Problem]:
    """Return the problems in files of a sealed dataset, by problem id."""
    problems = {}
    columns = ("problem_id", "question", "answer", "source", "split", "metadata")
    rows = collect_rows(scan_rows("problems", files).select(columns))
    for problem_id, question, answer, source, split, metadata in rows.iter_rows():
        problems[problem_id] = Problem(
            question, answer, source, split, parse_metadata(problem_id, metadata)
        )
    return problems
