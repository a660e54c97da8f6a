"""An index of the problems and solutions of a sealed dataset: one narrow row for each.

Memory holds about 50 bytes per solution and 100 bytes per problem, and the texts of one file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsdpo_data.core.entities import GRADED_OUTCOMES, OUTCOMES
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.schema import parse_metadata, read_batches, scan_rows
from fsdpo_data.problems.question_key import question_key
from fsdpo_data.selection.expressions import RowCondition, metadata_column
from fsdpo_data.steps.rewards import aggregate_expr

#: Columns of the problems in conditions, next to the fields of their metadata.
PROBLEM_COLUMNS = ("problem_id", "source", "split", "question", "answer")
#: Counts of the solutions of a problem, which conditions on problems may use.
COUNT_COLUMNS = ("solutions", "graded", "correct", "incorrect", "pass_rate")
#: Start of the names of fields of the metadata in the index, which may be named as its columns.
METADATA_PREFIX = "metadata."


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRequest:
    """The optional columns of an index, which take time or memory."""

    aggregate: str = ""  #: Aggregate of the step rewards in the column ``reward``; empty for none.
    condition: RowCondition | None = None  #: Condition on solutions, in the column ``fits``.
    problem_condition: RowCondition | None = None  #: Condition on problems; see ``fits``.
    has_order: bool = False  #: Whether solutions have the column ``order``, for samples.
    has_answer: bool = False  #: Whether solutions have the column ``answer``.


def build_index(
    root: Path, manifest: Manifest, request: IndexRequest, progress: Progress
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read all files of a sealed dataset once, and return narrow rows of problems and solutions.

    Args:
        root: Directory of the dataset.
        manifest: Its manifest.
        request: The optional columns.
        progress: Receives the progress.

    Returns:
        One row per problem, in the order of the files: ``problem`` is its number, and
        ``question_key`` a hash of its question. The counts of :data:`COUNT_COLUMNS` follow. And one
        row per solution, in the order of the files: ``problem`` is the number of its problem,
        ``file`` and ``row`` its location, and ``text`` a hash of its text.

    Raises:
        InputError: if a condition does not fit the columns.
        SchemaError: if a file is damaged.
    """
    progress.phase("index", manifest.rows.solutions)
    problems = _index_problems(manifest.config_paths(root, "problems"), request)
    numbers = problems.select("problem_id", "problem")
    solution_frames = []
    for file_number, file in enumerate(manifest.config_paths(root, "solutions")):
        solutions = _index_solutions(file, file_number, numbers, request)
        solution_frames.append(solutions)
        progress.advance(solutions.height)
    solutions = pl.concat(solution_frames)
    problems = _evaluate_problem_condition(add_counts(problems, solutions), request)
    return problems, solutions


def question_keys(questions: pl.Series) -> pl.Series:
    """Return a 64-bit hash of the key of each question."""
    return _stable_hashes(map(question_key, questions))


def _stable_hashes(texts: Iterable[str]) -> pl.Series:
    """Return 64-bit hashes that are the same in all releases of polars."""
    values = [
        int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
        for text in texts
    ]
    return pl.Series(values, dtype=pl.UInt64)


def _index_problems(files: Sequence[Path], request: IndexRequest) -> pl.DataFrame:
    """Return the index of the problems."""
    condition = request.problem_condition
    names = sorted(_condition_metadata(condition))
    texts = [name for name in ("question", "answer") if condition and name in condition.names]
    frames = []
    fields: list[dict[str, Any]] = []
    for file in files:
        for batch in read_batches("problems", file):
            rows = pl.DataFrame(batch.replace_schema_metadata())
            frames.append(_index_problem_rows(rows, texts))
            if names:
                fields += _metadata_fields(rows, names)
    problems = pl.concat(frames).with_row_index("problem")
    # All batches together, so that a field has one type in all of them.
    columns = [metadata_column(fields, name).alias(f"{METADATA_PREFIX}{name}") for name in names]
    return problems.with_columns(columns)


def _condition_metadata(condition: RowCondition | None) -> list[str]:
    """Return the names in a condition on problems that are fields of the metadata."""
    if condition is None:
        return []
    columns = (*PROBLEM_COLUMNS, *COUNT_COLUMNS)
    return [name for name in condition.names if name not in columns]


def _index_problem_rows(rows: pl.DataFrame, texts: Sequence[str]) -> pl.DataFrame:
    """Return the index of some problems, without their metadata."""
    return rows.select(
        "problem_id",
        "source",
        "split",
        *texts,
        question_key=question_keys(rows["question"]),
    )


def _metadata_fields(rows: pl.DataFrame, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield some fields of the metadata of each problem; None for a missing field."""
    for problem_id, metadata in rows.select("problem_id", "metadata").iter_rows():
        values = parse_metadata(problem_id, metadata)
        yield {name: values.get(name) for name in names}


def _index_solutions(
    file: Path, file_number: int, numbers: pl.DataFrame, request: IndexRequest
) -> pl.DataFrame:
    """Return the index of the solutions in a file."""
    text = pl.col("completions").list.join("")
    columns: dict[str, pl.Expr] = {
        "outcome": pl.col("outcome").cast(pl.Enum(OUTCOMES)),
        "steps": pl.col("completions").list.len(),
        "n_tokens": pl.col("n_tokens"),
        "truncated": pl.col("finish_reason") == "length",
        "thinking_closed": pl.col("thinking_closed"),
        "text": text.hash(seed=0),
        "id": pl.col("solution_id").hash(seed=0),
    }
    if request.aggregate:
        columns["reward"] = aggregate_expr("step_rewards", request.aggregate)
    if request.has_answer:
        columns["answer"] = pl.col("answer").hash(seed=0)
    rows = scan_rows("solutions", [file])
    frame = collect_rows(rows.select("problem_id", **columns))
    if request.has_order:
        ids = collect_rows(rows.select("solution_id"))["solution_id"]
        frame = frame.with_columns(order=_stable_hashes(ids.to_list()))
    condition = request.condition
    if condition is not None:
        condition.check_names(list(rows.collect_schema().names()))
        if condition.names:
            condition_rows = collect_rows(rows.select(condition.names))
        else:
            condition_rows = frame.select("problem_id")
        frame = frame.with_columns(fits=condition.evaluate(condition_rows))
    frame = frame.with_row_index("row")
    joined = frame.join(numbers, on="problem_id", how="left", maintain_order="left")
    return joined.drop("problem_id").with_columns(file=pl.lit(file_number, dtype=pl.UInt32))


def is_graded() -> pl.Expr:
    """Return whether a solution is known to be correct or wrong."""
    return pl.col("outcome").is_in(list(GRADED_OUTCOMES))


def add_counts(problems: pl.DataFrame, solutions: pl.DataFrame) -> pl.DataFrame:
    """Return problems with the counts of their solutions; see :data:`COUNT_COLUMNS`."""
    is_correct = pl.col("outcome") == "correct"
    counts = solutions.group_by("problem").agg(
        solutions=pl.len(), graded=is_graded().sum(), correct=is_correct.sum()
    )
    problems = problems.join(counts, on="problem", how="left", maintain_order="left")
    problems = problems.with_columns(pl.col("solutions", "graded", "correct").fill_null(0))
    rate = pl.when(pl.col("graded") > 0).then(pl.col("correct") / pl.col("graded"))
    return problems.with_columns(
        incorrect=pl.col("graded") - pl.col("correct"), pass_rate=rate.cast(pl.Float64)
    )


def _evaluate_problem_condition(problems: pl.DataFrame, request: IndexRequest) -> pl.DataFrame:
    """Return problems with the column ``fits``, if there is a condition on problems."""
    condition = request.problem_condition
    if condition is None:
        return problems
    metadata_names = _condition_metadata(condition)
    for name in metadata_names:
        if problems[f"{METADATA_PREFIX}{name}"].null_count() == problems.height:
            known_names = ", ".join((*PROBLEM_COLUMNS, *COUNT_COLUMNS))
            raise InputError(
                f"there is no column {name!r}, and no problem has it in its metadata. The columns "
                f"are {known_names}, and the fields of the metadata. Texts have single quotes.",
                field=condition.field,
                value=condition.text,
            )
    columns = [name for name in condition.names if name not in metadata_names]
    fields = [pl.col(f"{METADATA_PREFIX}{name}").alias(name) for name in metadata_names]
    rows = problems.select(*columns, *fields) if condition.names else problems.select("problem")
    problems = problems.drop(["question", "answer"], strict=False)
    return problems.with_columns(fits=condition.evaluate(rows))
