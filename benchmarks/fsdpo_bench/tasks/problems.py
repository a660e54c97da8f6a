"""The problems of benchmarks as problems of a dataset.

Each problem is one row, even if a benchmark lists it twice or several benchmarks list it. Its
metadata have all its rows, so that results are by benchmark.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fsdpo_bench.tasks.load import LoadedTask
from fsdpo_bench.tasks.table import GRADING_METADATA
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.problems.benchmark_rows import BENCHMARKS_KEY, BenchmarkRow
from fsdpo_data.problems.load import ProblemSet, draw_positions

_MAX_SHOWN_CHARS = 80  #: Maximum length of a question in an error message.


def limit_problems(loaded: LoadedTask, limit: int | None, seed: int = 0) -> LoadedTask:
    """Return ``limit`` random problems of a benchmark; all problems for None."""
    if limit is None:
        return loaded
    return loaded.subset(draw_positions(loaded.ids, limit, seed))


def benchmark_problems(loaded_tasks: Sequence[LoadedTask]) -> ProblemSet:
    """Return the problems of benchmarks with unique ids, by benchmark and row.

    The source of a problem is the first benchmark that lists it.

    Raises:
        InputError: if two benchmarks grade one problem differently.
    """
    problems: dict[str, Problem] = {}
    rows_by_id: dict[str, list[BenchmarkRow]] = {}
    for loaded in loaded_tasks:
        for row, loaded_problem in zip(loaded.rows, loaded.problems, strict=True):
            problem = replace(loaded_problem, metadata=_grading_metadata(loaded_problem))
            first_problem = problems.setdefault(problem.id, problem)
            _check_grading(first_problem, problem)
            benchmark_row = BenchmarkRow(
                name=loaded.task.name,
                row=row,
                groups=loaded.task.problem_groups(loaded_problem.metadata),
                cluster=_cluster(loaded_problem),
            )
            rows_by_id.setdefault(problem.id, []).append(benchmark_row)
    return ProblemSet(
        problems=[
            _with_rows(problem, rows_by_id[problem_id]) for problem_id, problem in problems.items()
        ],
        source_refs=[loaded.ref for loaded in loaded_tasks],
    )


def _grading_metadata(problem: Problem) -> dict[str, Any]:
    """Return the metadata that decide the grading, and the note on the gold answer."""
    keys = (*GRADING_METADATA, "gold_note")
    return {key: problem.metadata[key] for key in keys if key in problem.metadata}


def _cluster(problem: Problem) -> str | None:
    """Return the base problem; None if no other problem shares it."""
    cluster = problem.metadata.get("cluster")
    return None if cluster in (None, "") else str(cluster)


def _check_grading(first: Problem, second: Problem) -> None:
    """Check that the problems of two benchmarks with equal ids are graded in the same way."""
    if all(first.metadata.get(key) == second.metadata.get(key) for key in GRADING_METADATA):
        return
    raise InputError(
        f"{first.source} and {second.source} grade the problem "
        f"{first.question[:_MAX_SHOWN_CHARS]!r} with different tolerances or further golds. Run "
        "the two benchmarks one after the other."
    )


def _with_rows(problem: Problem, rows: Sequence[BenchmarkRow]) -> Problem:
    """Return a problem with its rows of benchmarks."""
    metadata = {
        **problem.metadata,
        BENCHMARKS_KEY: [row.to_json() for row in rows],
    }
    return replace(problem, metadata=metadata)
