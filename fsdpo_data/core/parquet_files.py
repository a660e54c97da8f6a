"""Readers of parquet and Arrow files; errors of pyarrow and polars name the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import FsdpoError, InputError, SchemaError
from fsdpo_data.core.input_files import check_regular_file
from fsdpo_data.core.lazy import pa, pl, pq

BATCH_ROWS = 2048  #: Number of rows that are decoded at once.
_MAX_REASON_CHARS = 300  #: Characters of a library's message in an error.
#: The next step for a damaged file of a sealed dataset.
DAMAGE_ADVICE = "Build the dataset again, or download it again."


@contextmanager
def parquet_errors(
    location: str,
    error_class: type[FsdpoError] = InputError,
    advice: str = "",
    file_format: str = "parquet",
) -> Iterator[None]:
    """Turn errors of pyarrow and polars into an error that names the file.

    Args:
        location: The file or the dataset.
        error_class: Class of the error.
        advice: The next step; by default, restore the file.
        file_format: The expected format.

    Raises:
        FsdpoError: if the parquet library fails inside the block.
    """
    try:
        yield
    except FsdpoError:
        raise
    # A panic of polars is not an Exception.
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        pa.ArrowException,
        OSError,
        ValueError,
    ) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # a missing file or a failing disk, which the caller reports
        reason = " ".join(str(error).split())[:_MAX_REASON_CHARS] or type(error).__name__
        raise error_class(
            f"{location}: not {file_format}, or damaged ({reason}). "
            f"{advice or 'Restore the file, or download it again.'}"
        ) from None


def open_parquet(file: Path) -> pq.ParquetFile:
    """Open a regular parquet file.

    Raises:
        InputError: if the file is damaged.
        OSError: if the file is missing or inaccessible.
    """
    check_regular_file(file)
    with parquet_errors(str(file)):
        return pq.ParquetFile(file)


def read_parquet_rows(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a parquet file; memory holds a batch of rows.

    Raises:
        InputError: if the file is damaged.
        OSError: if the file is missing or inaccessible.
    """
    parquet_file = open_parquet(file)
    with parquet_errors(str(file)):
        for batch in parquet_file.iter_batches(BATCH_ROWS):
            yield from _batch_rows(batch)


def read_arrow_rows(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of an Arrow file as `save_to_disk` of `datasets` writes it.

    Raises:
        InputError: if the file is damaged.
        OSError: if the file is missing or inaccessible.
    """
    errors = parquet_errors(str(file), file_format="an Arrow stream")
    with errors, pa.memory_map(str(file)) as source:
        for batch in pa.ipc.open_stream(source):
            yield from _batch_rows(batch)


def _batch_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows of a part of a table."""
    frame = pl.DataFrame(batch)
    # Convert through text: a 32-bit 0.1 stays 0.1 and does not become 0.10000000149011612.
    frame = frame.with_columns(pl.col(pl.Float32).cast(pl.String).cast(pl.Float64))
    yield from frame.iter_rows(named=True)


def scan_parquet(files: Sequence[Path]) -> pl.LazyFrame:
    """Scan the rows of the files of a sealed dataset lazily; file names are never glob patterns.

    :func:`collect_rows` runs the scan. All files have the columns of the first file.
    """
    return pl.scan_parquet(list(files), glob=False, hive_partitioning=False)


def read_column_names(files: Sequence[Path], config: str) -> list[str]:
    """Return the names of the columns of the first file of a config.

    Raises:
        SchemaError: if there is no file, or the first one is damaged.
    """
    if not files:
        raise SchemaError(
            f"the manifest lists no files of {config}. Build the dataset again, or download it "
            "again."
        )
    names: list[str] = open_parquet(files[0]).schema_arrow.names
    return names


def collect_rows(rows: pl.LazyFrame, *, streaming: bool = False) -> pl.DataFrame:
    """Run a query on files of a sealed dataset.

    Args:
        rows: A query on the result of :func:`scan_parquet`.
        streaming: Whether memory holds only parts of the files.

    Raises:
        SchemaError: if a file is damaged, or has other columns.
    """
    advice = f"`fsdpo-data validate` names the file. {DAMAGE_ADVICE}"
    with parquet_errors("a file of the dataset", SchemaError, advice):
        return rows.collect(engine="streaming" if streaming else "auto")


def read_table_batches(
    file: Path, *, batch_rows: int = BATCH_ROWS, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file of a sealed dataset in batches.

    Args:
        file: The file.
        batch_rows: Maximum number of rows of a batch.
        columns: The columns to read; all by default.

    Raises:
        SchemaError: if the file is damaged.
    """
    parquet_file = open_parquet(file)
    with parquet_errors(str(file), SchemaError):
        yield from parquet_file.iter_batches(batch_rows, columns=columns)


def count_rows(file: Path) -> int:
    """Return the number of rows of a parquet file.

    Raises:
        InputError: if the file is damaged.
    """
    rows: int = open_parquet(file).metadata.num_rows
    return rows


def count_bytes(file: Path) -> int:
    """Return the size of the columns of a parquet file before their compression, in bytes.

    Raises:
        InputError: if the file is damaged.
    """
    metadata = open_parquet(file).metadata
    return sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
