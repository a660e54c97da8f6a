"""Readers of parquet files that other programs wrote; the files may be damaged or hostile.

pyarrow decodes all files. A damaged page can make the decoder of polars claim more memory than the
machine has, which ends the process. pyarrow raises an error instead. Only the bindings of its row
groups (``ParquetFile.metadata.row_group``) end the process at a damaged footer, so nothing calls
them before all rows were decoded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fsdpo_data.core.errors import FsdpoError, InputError, SchemaError
from fsdpo_data.core.input_files import check_regular_file
from fsdpo_data.core.lazy import pa, pl, pq

#: Maximum number of rows per byte of a file. Nulls take almost no bytes, so a small file may claim
#: more rows than fit into memory.
MAX_ROWS_PER_BYTE = 8
MIN_CHECKED_ROWS = 1_000_000  #: Number of rows that a file of any size may have.
BATCH_ROWS = 2048  #: Number of rows that are decoded at once.
SCAN_BATCH_ROWS = 8192  #: Number of rows that a scan decodes at once.
SCAN_PART_ROWS = 8192  #: Number of rows that a thread of a scan decodes, if row groups are small.
MAX_SCAN_THREADS = 8  #: Number of threads of a scan.
_MAX_REASON_CHARS = 300  #: Characters of a library's message in an error.
#: The next step for a damaged file of a sealed dataset.
DAMAGE_ADVICE = "Build the dataset again, or download it again."


@contextmanager
def parquet_errors(
    location: str, error_class: type[FsdpoError] = InputError, advice: str = ""
) -> Iterator[None]:
    """Turn errors of pyarrow and polars into an error that names the file.

    Args:
        location: The file or the dataset.
        error_class: Class of the error.
        advice: The next step; by default, restore the file.

    Raises:
        FsdpoError: if the parquet library fails inside the block.
    """
    try:
        yield
    except FsdpoError:
        raise
    # A damaged file can make polars panic. A panic is not an Exception.
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        pa.ArrowException,
        OSError,
        ValueError,
        OverflowError,
        MemoryError,
    ) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # a missing file or a failing disk, which the caller reports
        reason = " ".join(str(error).split())[:_MAX_REASON_CHARS] or type(error).__name__
        raise error_class(
            f"{location}: not parquet, or damaged ({reason}). "
            f"{advice or 'Restore the file, or download it again.'}"
        ) from None


def open_parquet(file: Path) -> pq.ParquetFile:
    """Open a regular parquet file whose footer is plausible for its size.

    Raises:
        InputError: if the file is damaged, or claims too many rows.
        OSError: if the file is missing or inaccessible.
    """
    check_regular_file(file)
    size = file.stat().st_size
    with parquet_errors(str(file)):
        parquet_file = pq.ParquetFile(file)
        _check_names(list(parquet_file.schema_arrow))
    rows = parquet_file.metadata.num_rows
    if rows < 0 or rows > max(MIN_CHECKED_ROWS, MAX_ROWS_PER_BYTE * size):
        raise InputError(
            f"{file} claims {rows:,} rows in {size:,} bytes, so nearly all of its values are "
            "empty. Write the file again without the empty rows."
        )
    return parquet_file


def _check_names(fields: Sequence[pa.Field]) -> None:
    """Check the names and the metadata of columns, because polars panics if they are not UTF-8.

    Raises:
        UnicodeError: if a text is not UTF-8.
    """
    for field in fields:
        field.name.encode()
        for key, value in (field.metadata or {}).items():
            key.decode()
            value.decode()
        _check_names([field.type.field(index) for index in range(field.type.num_fields)])


def read_parquet_rows(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a parquet file; memory holds a batch of rows.

    Raises:
        InputError: if the file is damaged, or claims too many rows.
        OSError: if the file is missing or inaccessible.
    """
    parquet_file = open_parquet(file)
    with parquet_errors(str(file)):
        for batch in _decode(parquet_file, BATCH_ROWS):
            frame = _to_frame(batch)
            # Convert through text: a 32-bit 0.1 stays 0.1 and does not become 0.10000000149011612.
            frame = frame.with_columns(pl.col(pl.Float32).cast(pl.String).cast(pl.Float64))
            yield from frame.iter_rows(named=True)


def _decode(
    parquet_file: pq.ParquetFile, batch_rows: int, **selection: Any
) -> Iterator[pa.RecordBatch]:
    """Yield batches of a file, whose offsets and texts are valid.

    Args:
        parquet_file: The file.
        batch_rows: Maximum number of rows of a batch.
        **selection: The ``columns`` and the ``row_groups`` to read; all by default.

    Raises:
        ValueError: if the file and its footer have different numbers of rows.
    """
    rows = 0
    footer_rows = parquet_file.metadata.num_rows
    for batch in parquet_file.iter_batches(batch_rows, **selection):
        batch.validate(full=True)  # polars prints a traceback for text that is not UTF-8
        rows += batch.num_rows
        if rows > footer_rows:
            break
        yield batch
    if rows > footer_rows or ("row_groups" not in selection and rows < footer_rows):
        raise ValueError(f"the row groups do not have the {footer_rows:,} rows of the footer")


def _to_frame(batch: pa.RecordBatch) -> pl.DataFrame:
    """Return a batch as a polars frame; a batch without columns keeps its number of rows."""
    if not batch.num_columns:
        return pl.DataFrame(height=batch.num_rows)
    # polars panics at metadata that is not UTF-8, and uses none.
    table = pa.Table.from_batches([batch]).replace_schema_metadata()
    frame = pl.from_arrow(table, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame


def scan_parquet(files: Sequence[Path]) -> pl.LazyFrame:
    """Scan the rows of the files of a sealed dataset lazily; file names are never glob patterns.

    :func:`collect_rows` runs the scan. The query gets the columns of the first file.

    Raises:
        InputError: if a file is damaged, or claims too many rows.
        SchemaError: when the query runs, if a file is damaged inside, or has other columns.
    """
    schemas = [open_parquet(file).schema_arrow for file in files]
    with parquet_errors(str(files[0])):
        schema = pl.DataFrame(schemas[0].remove_metadata().empty_table()).schema
    return pl.io.plugins.register_io_source(_ParquetScan(files, schema).read, schema=schema)


class _FilePart(NamedTuple):
    """Row groups of a file, which one thread decodes."""

    file: Path  #: The file.
    metadata: pq.FileMetaData  #: The footer of the file.
    row_groups: list[int]  #: Indices of the row groups.


@dataclass(frozen=True)
class _ParquetScan:
    """A source of rows for polars, which pyarrow decodes."""

    files: Sequence[Path]  #: The files.
    schema: Mapping[str, pl.DataType]  #: The columns of each file.

    def read(
        self,
        columns: Sequence[str] | None,
        predicate: pl.Expr | None,
        max_rows: int | None,
        batch_rows: int | None,
    ) -> Iterator[pl.DataFrame]:
        """Yield the rows, as ``polars.io.plugins.register_io_source`` expects them.

        Args:
            columns: The columns to read; all if None.
            predicate: Selects rows; it uses no other columns.
            max_rows: Number of rows to read before the selection; all if None.
            batch_rows: A suggestion, which is ignored.
        """
        if max_rows is not None:
            for frame in self._read_first_rows(columns, max_rows):
                yield frame if predicate is None else frame.filter(predicate)
            return
        n_threads = min(MAX_SCAN_THREADS, pa.cpu_count())
        pool = ThreadPoolExecutor(n_threads)
        pending: deque[Future[list[pl.DataFrame]]] = deque()
        try:
            for part in self._parts():
                pending.append(pool.submit(self._read_part, part, columns, predicate))
                if len(pending) > n_threads:
                    yield from pending.popleft().result()
            while pending:
                yield from pending.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _read_first_rows(
        self, columns: Sequence[str] | None, max_rows: int
    ) -> Iterator[pl.DataFrame]:
        for part in self._parts():
            for frame in self._decode_part(part, columns):
                yield frame.head(max_rows)
                max_rows -= frame.height
                if max_rows <= 0:
                    return

    def _parts(self) -> Iterator[_FilePart]:
        """Yield the parts of the files; small row groups are joined to ``SCAN_PART_ROWS`` rows."""
        for file in self.files:
            metadata = open_parquet(file).metadata
            n_groups = metadata.num_row_groups
            # The footer has the rows of each group too, but reading them can end the process.
            part_groups = max(1, SCAN_PART_ROWS * n_groups // max(1, metadata.num_rows))
            for start in range(0, n_groups, part_groups):
                row_groups = list(range(start, min(start + part_groups, n_groups)))
                yield _FilePart(file, metadata, row_groups)

    def _read_part(
        self, part: _FilePart, columns: Sequence[str] | None, predicate: pl.Expr | None
    ) -> list[pl.DataFrame]:
        """Return the selected rows of a part."""
        if predicate is None:
            return list(self._decode_part(part, columns))
        # If the query selects a few problems, most parts contain no row of theirs.
        key_columns = list(dict.fromkeys(predicate.meta.root_names()))
        key_frames = self._decode_part(part, key_columns)
        if not any(frame.filter(predicate).height for frame in key_frames):
            return []
        return [frame.filter(predicate) for frame in self._decode_part(part, columns)]

    def _decode_part(
        self, part: _FilePart, columns: Sequence[str] | None
    ) -> Iterator[pl.DataFrame]:
        """Yield the rows of a part in batches.

        Raises:
            SchemaError: if the file is damaged inside, or has other columns than the first file.
        """
        names = list(self.schema) if columns is None else list(columns)
        with parquet_errors(str(part.file), SchemaError, DAMAGE_ADVICE):
            parquet_file = pq.ParquetFile(part.file, metadata=part.metadata)
            if missing := sorted(set(names) - set(parquet_file.schema_arrow.names)):
                raise SchemaError(
                    f"{part.file} lacks the columns {', '.join(missing)} of {self.files[0].name}. "
                    f"{DAMAGE_ADVICE}"
                )
            for batch in _decode(
                parquet_file, SCAN_BATCH_ROWS, columns=names, row_groups=part.row_groups
            ):
                frame = _to_frame(batch)
                if names:
                    frame = frame.select(names)
                self._check_types(part.file, frame)
                yield frame

    def _check_types(self, file: Path, frame: pl.DataFrame) -> None:
        """Raise a SchemaError if a file has other types than the first file."""
        for name, column_type in frame.schema.items():
            if column_type != self.schema[name]:
                raise SchemaError(
                    f"{file}: the column {name} is {column_type}, and {self.schema[name]} in "
                    f"{self.files[0].name}. {DAMAGE_ADVICE}"
                )


def collect_rows(rows: pl.LazyFrame, *, streaming: bool = False) -> pl.DataFrame:
    """Run a query on files of a sealed dataset.

    Args:
        rows: A query on the result of :func:`scan_parquet`.
        streaming: Whether memory holds only parts of the files.

    Raises:
        SchemaError: if a file is damaged inside.
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
        SchemaError: if the file is damaged inside.
    """
    parquet_file = open_parquet(file)
    with parquet_errors(str(file), SchemaError):
        yield from _decode(parquet_file, batch_rows, columns=columns)


def count_rows(file: Path) -> int:
    """Return the number of rows of a parquet file.

    Raises:
        InputError: if the file is damaged, or claims too many rows.
    """
    rows: int = open_parquet(file).metadata.num_rows
    return rows
