"""Read the problems of a sealed dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.lazy import pa, pl
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


def questions_by_id(files: Sequence[Path], problem_ids: pa.ChunkedArray) -> dict[str, str]:
    """Return the questions of some problems, by problem id."""
    unique_ids = pl.Series(problem_ids.unique().to_pylist(), dtype=pl.String).implode()
    rows = scan_rows("problems", files).filter(pl.col("problem_id").is_in(unique_ids))
    return dict(collect_rows(rows.select("problem_id", "question"), streaming=True).iter_rows())
