"""Schema 2: the columns of the three configs, and the parquet files that store them.

The README describes the columns in its section "Data model".
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from fsdpo_data.core.entities import Pair, Problem, Solution, check_gold_metadata
from fsdpo_data.core.errors import SchemaError
from fsdpo_data.core.files import write_file
from fsdpo_data.core.input_files import parse_json
from fsdpo_data.core.lazy import pa, pl, pq
from fsdpo_data.core.parquet_files import collect_rows, open_parquet, parquet_errors, scan_parquet
from fsdpo_data.core.toml_tables import read_toml

#: Version of the columns in ``schema.toml``. Manifests, parquet footers and Hub tags have it.
SCHEMA_VERSION = 2
VERSION_KEY = "fsdpo_schema_version"  #: Key of the schema version in a parquet footer.
#: Maximum size of a row group before compression. The Hub's viewer reads whole row groups, and
#: refuses large ones.
MAX_ROW_GROUP_BYTES = 100 * 2**20
CONFIGS = ("problems", "solutions", "pairs")
_ENTITIES = {"problems": Problem, "solutions": Solution, "pairs": Pair}
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8,}.*)*)", re.M)  #: An attribute in a docstring.
#: Columns of lists whose items may not be null. Rewards have a rule of their own.
NON_NULL_LISTS = (
    "completions",
    "labels",
    "rollouts",
    "step_ratings",
    "chosen_steps",
    "rejected_steps",
)
#: Columns of solutions that `inspect` and `view` show in places of their own.
_PLACED_COLUMNS = (
    *("solution_id", "problem_id", "sample_index", "prompt", "completions", "finish_reason"),
    *("n_tokens", "answer", "outcome", "labels", "rollouts", "step_rewards"),
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a config, as ``schema.toml`` declares it."""

    name: str  #: Name of the column, which is also the field of the entity.
    type_spec: Any  #: Arrow type: a name, a list of one type, or a table of struct fields.
    #: Whether values may be null; in other columns, a null marks a damaged file.
    nullable: bool = False


class ColumnSummary(NamedTuple):
    """A column of a dataset, as a reader sees it."""

    name: str  #: Name of the column.
    type: str  #: Type of its values.
    nulls: int  #: Number of rows without a value.
    description: str  #: Meaning of its values.


@cache
def config_columns(config: str) -> tuple[Column, ...]:
    """Return the columns of ``problems``, ``solutions`` or ``pairs``."""
    columns = []
    for name, declaration in read_toml(__file__)[config].items():
        if isinstance(declaration, dict):
            fields = {**declaration, "type_spec": declaration["type"]}
            del fields["type"]
            columns.append(Column(name, **fields))
        else:
            columns.append(Column(name, declaration))
    return tuple(columns)


def describe_columns(config: str) -> dict[str, str]:
    """Return the description of each column, from the docstring of its entity."""
    docstring = inspect.cleandoc(_ENTITIES[config].__doc__ or "")
    _, _, attributes = docstring.partition("\nAttributes:\n")
    descriptions = {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(attributes)}
    return {
        column.name: descriptions.get(column.name, "Id of the problem.").replace("``", "`")
        for column in config_columns(config)
    }


def other_values(solution: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are not null, of columns without a place in `inspect` and `view`."""
    names = [column.name for column in config_columns("solutions")]
    return {
        name: solution[name]
        for name in names
        if name not in _PLACED_COLUMNS and solution.get(name) is not None
    }


def nullable_columns(config: str) -> set[str]:
    """Return the names of the columns whose values may be null."""
    return {column.name for column in config_columns(config) if column.nullable}


@cache
def arrow_schema(config: str) -> pa.Schema:
    """Return the Arrow schema of ``problems``, ``solutions`` or ``pairs``.

    The metadata, which parquet footers store, has the schema version.
    """
    fields = [arrow_field(column) for column in config_columns(config)]
    return pa.schema(fields, metadata={VERSION_KEY: str(SCHEMA_VERSION)})


def arrow_field(column: Column) -> pa.Field:
    """Return the Arrow field of a column."""
    return pa.field(column.name, _arrow_type(column.type_spec))


def _arrow_type(type_spec: Any) -> pa.DataType:
    """Return the Arrow type for a name, a list of one type, or a table of struct fields."""
    if isinstance(type_spec, list):
        return pa.list_(_arrow_type(type_spec[0]))
    if isinstance(type_spec, dict):
        return pa.struct([(name, _arrow_type(spec)) for name, spec in type_spec.items()])
    return pa.type_for_alias(type_spec)


def read_table(config: str, file: Path) -> pa.Table:
    """Read a file of a sealed dataset.

    Raises:
        SchemaError: if the file is damaged, or has other columns.
    """
    parquet_file = open_parquet(file)
    with parquet_errors(str(file), SchemaError):
        table = parquet_file.read()
    names = arrow_schema(config).names
    if table.column_names != names:
        raise SchemaError(
            f"{file} has other columns than schema {SCHEMA_VERSION}. Build the dataset again, or "
            "download it again."
        )
    return table


def parse_metadata(problem_id: str, metadata: str) -> dict[str, Any]:
    """Return the metadata of a problem of a sealed dataset.

    Raises:
        SchemaError: if the text is not a JSON object, or grading cannot read it.
    """
    reason = "its value is not an object"
    try:
        values = parse_json(metadata)
        if isinstance(values, dict):
            check_gold_metadata(values)
            return values
    except (TypeError, ValueError) as error:
        reason = str(error)
    raise SchemaError(
        f"the metadata of problem {problem_id} is not a valid JSON object ({reason}). Build the "
        "dataset again, or download it again."
    )


def scan_rows(config: str, files: Sequence[Path]) -> pl.LazyFrame:
    """Scan files of a sealed dataset.

    Raises:
        SchemaError: if there is no file.
    """
    if not files:
        raise SchemaError(
            f"the manifest lists no files of {config}. Build the dataset again, or download it "
            "again."
        )
    return scan_parquet(files)


def _describe_type(type_spec: Any) -> str:
    """Return a type in a few characters, such as ``[string]`` for a list of strings."""
    if isinstance(type_spec, list):
        return f"[{_describe_type(type_spec[0])}]"
    if isinstance(type_spec, dict):
        return f"{{{', '.join(type_spec)}}}"
    return str(type_spec)


def summarize_columns(config: str, rows: pl.LazyFrame) -> list[ColumnSummary]:
    """Return a summary of each column of a config, for the rows of :func:`scan_rows`."""
    nulls = collect_rows(rows.null_count()).row(0, named=True)
    descriptions = describe_columns(config)
    return [
        ColumnSummary(
            name=column.name,
            type=_describe_type(column.type_spec),
            nulls=nulls[column.name],
            description=descriptions[column.name],
        )
        for column in config_columns(config)
    ]


def replace_column(table: pa.Table, name: str, values: Sequence[Any]) -> pa.Table:
    """Return a table of :func:`read_table` for solutions, with new values in one column.

    Raises:
        ValueError: if solutions have no such column.
    """
    schema = arrow_schema("solutions")
    if name not in schema.names:
        raise ValueError(
            f"solutions have no column {name!r}. Add the column to dataset/schema.toml first, or "
            f"choose one of {', '.join(schema.names)}."
        )
    index = schema.get_field_index(name)
    column = pa.array(values, type=schema.field(index).type)
    return table.set_column(index, schema.field(index), column).cast(schema)


def problems_table(problems: Iterable[Problem]) -> pa.Table:
    """Return problems as a table."""
    rows = [problem.to_row() for problem in problems]
    return pa.Table.from_pylist(rows, schema=arrow_schema("problems"))


def to_table(config: str, rows: Iterable[Solution | Pair]) -> pa.Table:
    """Return solutions or pairs as a table."""
    schema = arrow_schema(config)
    # Values are gathered by column, because a dict for each of millions of solutions would take
    # as long as grading them.
    read_values = attrgetter(*schema.names)
    columns = list(zip(*map(read_values, rows), strict=True)) or [()] * len(schema)
    arrays = [
        pa.array(values, type=column_type)
        for values, column_type in zip(columns, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def digest_bytes(text: str) -> bytes:
    """Return the bytes of a solution's text in the text digest of its file.

    A blank text has no steps and is read back as an empty text, so both have the same bytes.
    """
    return (text.encode() if text.strip() else b"") + b"\0"


def _row_group_rows(table: pa.Table) -> int:
    """Return the most rows with which no row group exceeds ``MAX_ROW_GROUP_BYTES``, halving."""
    rows: int = max(1, table.num_rows)
    while rows > 1 and any(
        table.slice(start, rows).nbytes > MAX_ROW_GROUP_BYTES
        for start in range(0, table.num_rows, rows)
    ):
        rows = (rows + 1) // 2
    return rows


def write_parquet(table: pa.Table, target: Path) -> None:
    """Write a table atomically, and create its folder if it is missing.

    Content-defined chunking aligns pages with the content. A store that keeps equal chunks once,
    such as the Hub's, then receives only the changed chunks of a new version.
    """
    # The table is encoded in memory, because Arrow aborts the process when a disk is full.
    buffer = pa.BufferOutputStream()
    pq.write_table(
        table,
        buffer,
        row_group_size=_row_group_rows(table),
        compression="zstd",
        use_content_defined_chunking=True,
        write_page_index=True,  # the Hub's viewer reads single pages
    )
    write_file(target, buffer.getvalue())
