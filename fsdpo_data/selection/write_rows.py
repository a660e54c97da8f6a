"""Write chosen rows of sealed datasets as the files of a new dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.parquet_files import count_bytes, count_rows
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.schema import (
    read_batches,
    read_table,
    read_text_digest,
    text_digest,
    write_parquet,
)

FILE_SOLUTIONS = 100_000  #: Number of solutions after which a file of solutions ends.
FILE_BYTES = 2**30  #: Size in memory after which a file of solutions ends, by the mean row.
PROBLEMS_PATH = "problems/train-00000-of-00001.parquet"  #: The file of all chosen problems.
_CACHED_TABLES = 3  #: Number of source files whose rows stay in memory.


def write_problems(files: Sequence[Path], problems: pl.DataFrame, root: Path) -> None:
    """Write problems in the order of the index, unless an interrupted run has written them.

    Args:
        files: The files of problems that the index describes.
        problems: Rows of the index.
        root: Directory of the new dataset.
    """
    file = root / PROBLEMS_PATH
    if not file.exists():
        rows = set(problems["problem"].to_list())
        write_parquet(pa.concat_tables(_chosen_rows(files, rows)), file)


def _chosen_rows(files: Sequence[Path], rows: set[int]) -> Iterator[pa.Table]:
    """Yield the chosen rows of files; ``rows`` counts over all files."""
    start = 0
    for file in files:
        for batch in read_batches("problems", file):
            chosen = [row - start for row in range(start, start + batch.num_rows) if row in rows]
            start += batch.num_rows
            yield batch.take(pa.array(chosen, type=pa.int64()))


def write_solutions(
    files: Sequence[Path], solutions: pl.DataFrame, root: Path, progress: Progress
) -> dict[str, str]:
    """Write solutions, problem by problem, except files that an interrupted run has written.

    The problems have the order of their first solutions. A file has all solutions of its problems.
    Memory holds the rows of one new file and of a few source files. Problems whose solutions are
    in many files, in different orders, need more reading.

    Args:
        files: The files of solutions that the index describes.
        solutions: Rows of the index, with ``problem``, ``file`` and ``row``.
        root: Directory of the new dataset.
        progress: Receives the progress.

    Returns:
        The digest of the texts of each new file, by path in the dataset.
    """
    first_position = pl.col("position").min().over("problem")
    ordered = solutions.select("problem", "file", "row").with_row_index("position")
    ordered = ordered.with_columns(first=first_position).sort("first", "position")
    bounds = list(_file_bounds(ordered["problem"], _solutions_per_file(files)))
    progress.phase("write", solutions.height)
    read_file = lru_cache(maxsize=_CACHED_TABLES)(
        lambda number: read_table("solutions", files[number])
    )
    text_digests = {}
    for index, (start, end) in enumerate(bounds):
        path = f"solutions/train-{index:05d}-of-{len(bounds):05d}.parquet"
        if (root / path).exists():
            text_digests[path] = read_text_digest(root / path)
        else:
            rows = ordered.slice(start, end - start).with_row_index("place")
            tables = []
            new_positions = []
            for (number,), file_rows in rows.group_by("file", maintain_order=True):
                tables.append(_take_rows(read_file(number), file_rows["row"]))
                new_positions.append(file_rows["place"])
            table = _take_rows(pa.concat_tables(tables), pl.concat(new_positions).arg_sort())
            text_digests[path] = text_digest(table["completions"].chunks)
            write_parquet(table, root / path)
        progress.advance(end - start)
    return text_digests


def _take_rows(table: pa.Table, rows: pl.Series) -> pa.Table:
    """Return rows of a table by their numbers, in the given order.

    Rows in ascending order are filtered. ``take`` would join all chunks of a column, and fails if
    its texts have more than 2 GiB.
    """
    if not rows.is_sorted():
        return table.take(rows.to_arrow())
    is_chosen = pl.int_range(0, table.num_rows, dtype=pl.UInt32, eager=True).is_in(rows.implode())
    return table.filter(is_chosen.to_arrow())


def _solutions_per_file(files: Sequence[Path]) -> int:
    """Return the number of solutions after which a new file ends, by the mean size of a row."""
    n_bytes = sum(map(count_bytes, files))
    n_rows = sum(map(count_rows, files))
    return min(FILE_SOLUTIONS, max(1, FILE_BYTES * n_rows // max(1, n_bytes)))


def _file_bounds(problems: pl.Series, file_solutions: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last row of each file; a file ends with a problem."""
    is_end = (problems != problems.shift(-1)).fill_null(value=True)
    start = 0
    for end in (is_end.arg_true() + 1).to_list():
        if end - start >= file_solutions or end == len(problems):
            yield start, end
            start = end
