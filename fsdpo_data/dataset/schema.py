"""The columns of the three configs, and the parquet files that store them.

The schema grows without breaking what is published: a reader of version M.n reads every M.x. A
nullable column that a file lacks is null. A column that this release does not know, of a newer
release or of a user, stands behind the others, and stages carry it along. ``SCHEMA.md`` has the
rules.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from fsdpo_data.core.parquet_files import (
    BATCH_ROWS,
    collect_rows,
    open_parquet,
    parquet_errors,
    read_column_names,
    read_table_batches,
    scan_parquet,
)
from fsdpo_data.core.toml_tables import read_module_table

#: Version MAJOR.MINOR of the columns in ``schema.toml``. Manifests, parquet footers and Hub tags
#: have it.
SCHEMA_VERSION = "1.0"
VERSION_KEY = "fsdpo_schema_version"  #: Key of the schema version in a parquet footer.
#: Maximum size of a row group before compression. The Hub's viewer reads whole row groups, and
#: refuses large ones.
MAX_ROW_GROUP_BYTES = 100 * 2**20
#: Description of a column that ``schema.toml`` does not have.
UNKNOWN_COLUMN = f"not a column of schema {SCHEMA_VERSION}"
CONFIGS = ("problems", "solutions", "pairs")
_ENTITIES = {"problems": Problem, "solutions": Solution, "pairs": Pair}
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8,}.*)*)", re.M)  #: An attribute in a docstring.
#: Columns of lists whose items may not be null. Rewards have a rule of their own.
NON_NULL_LISTS = (
    "completions",
    "labels",
    "rollouts",
    "imported_ratings",
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
    description: str = ""  #: Meaning of its values, if the column is not a field of an entity.


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
    for name, declaration in read_module_table(__file__)[config].items():
        if isinstance(declaration, dict):
            fields = {**declaration, "type_spec": declaration["type"]}
            del fields["type"]
            columns.append(Column(name, **fields))
        else:
            columns.append(Column(name, declaration))
    return tuple(columns)


def describe_columns(config: str) -> dict[str, str]:
    """Return the description of each column, from ``schema.toml`` or the entity's docstring."""
    docstring = inspect.cleandoc(_ENTITIES[config].__doc__ or "")
    _, _, attributes = docstring.partition("\nAttributes:\n")
    descriptions = {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(attributes)}
    return {
        column.name: (
            column.description or descriptions.get(column.name, "Id of the problem.")
        ).replace("``", "`")
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


def major_version(version: str) -> str:
    """Return MAJOR of a version MAJOR.MINOR; a release reads every version with its MAJOR."""
    return version.partition(".")[0] if re.fullmatch(r"\d+\.\d+", version) else ""


def is_readable(version: str) -> bool:
    """Whether this release reads datasets of a schema version."""
    return major_version(version) == major_version(SCHEMA_VERSION)


def unknown_columns(config: str, names: Iterable[str]) -> list[str]:
    """Return the columns that a config does not have in this release."""
    own_names = arrow_schema(config).names
    return [name for name in names if name not in own_names]


def plain_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the Arrow type that every reader knows for the same values.

    polars writes large and dictionary types, for example.
    """
    types = pa.types
    if types.is_large_string(arrow_type) or types.is_string_view(arrow_type):
        return pa.string()
    if types.is_large_binary(arrow_type) or types.is_binary_view(arrow_type):
        return pa.binary()
    if types.is_dictionary(arrow_type) or types.is_run_end_encoded(arrow_type):
        return plain_type(arrow_type.value_type)
    if hasattr(arrow_type, "value_type"):  # lists of any kind
        return pa.list_(plain_type(arrow_type.value_type))
    if types.is_struct(arrow_type):
        return pa.struct([(field.name, plain_type(field.type)) for field in arrow_type])
    return arrow_type


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose columns have the types of :func:`plain_type`."""
    return pa.schema([(field.name, plain_type(field.type)) for field in schema])


def full_schema(config: str, file_schema: pa.Schema) -> pa.Schema:
    """Return the columns of a config, and behind them the unknown columns of a file."""
    own_schema = arrow_schema(config)
    unknown = map(file_schema.field, sorted(unknown_columns(config, file_schema.names)))
    return pa.schema([*own_schema, *unknown], metadata=own_schema.metadata)


def column_problems(config: str, file_schema: pa.Schema) -> list[str]:
    """Return what makes the columns of a file unreadable.

    A missing column that may be null is none, and neither is an unknown column.
    """
    problems = []
    for column in config_columns(config):
        expected = arrow_field(column).type
        index = file_schema.get_field_index(column.name)
        if index >= 0:
            actual = file_schema.field(index).type
            if actual != expected:
                problems.append(f"{column.name} is {actual}, expected {expected}")
        elif column.name in file_schema.names:
            problems.append(f"{column.name} occurs more than once")
        elif not column.nullable:
            problems.append(f"{column.name} is missing, expected {expected}")
    return problems


def conform(config: str, table: pa.Table, location: str) -> pa.Table:
    """Return a table with all columns of a config, and its unknown columns behind them.

    Args:
        config: Name of the config.
        table: Rows of a file.
        location: The file, for errors.

    Raises:
        SchemaError: if a column is missing that may not be null, or has another type.
    """
    problems = column_problems(config, table.schema)
    if problems:
        raise SchemaError(
            f"{location} does not fit schema {SCHEMA_VERSION}: {'; '.join(problems)}. Build the "
            "dataset again, or download it again."
        )
    schema = full_schema(config, table.schema)
    columns = [
        table[field.name]
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def read_table(config: str, file: Path) -> pa.Table:
    """Read a file of a sealed dataset, with the columns of :func:`conform`.

    Raises:
        SchemaError: if the file is damaged, or its columns do not fit.
    """
    parquet_file = open_parquet(file)
    with parquet_errors(str(file), SchemaError):
        table = parquet_file.read()
    return conform(config, table, str(file))


def read_batches(config: str, file: Path, *, batch_rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
    """Yield the rows of a file of a sealed dataset in parts, with the columns of :func:`conform`.

    Raises:
        SchemaError: if the file is damaged, or its columns do not fit.
    """
    for batch in read_table_batches(file, batch_rows=batch_rows):
        yield conform(config, pa.Table.from_batches([batch]), str(file))


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
    """Scan files of a sealed dataset; the rows have the columns of :func:`conform`.

    Raises:
        SchemaError: if there is no file.
    """
    names = read_column_names(files, config)
    rows = scan_parquet(files)
    own_schema = arrow_schema(config)
    missing = [name for name in nullable_columns(config) if name not in names]
    if missing:
        empty = pl.DataFrame(pa.schema([own_schema.field(name) for name in missing]).empty_table())
        rows = rows.with_columns(
            pl.lit(None, dtype=data_type).alias(name) for name, data_type in empty.schema.items()
        )
    return rows.select(*own_schema.names, *unknown_columns(config, names)) if missing else rows


def describe_type(type_spec: Any) -> str:
    """Return a type in a few characters, such as ``list<string>``."""
    return str(_arrow_type(type_spec)).replace("item: ", "")


def summarize_columns(config: str, rows: pl.LazyFrame) -> list[ColumnSummary]:
    """Return a summary of each column of a config, for the rows of :func:`scan_rows`."""
    nulls = collect_rows(rows.null_count()).row(0, named=True)
    descriptions = describe_columns(config)
    types = {column.name: describe_type(column.type_spec) for column in config_columns(config)}
    return [
        ColumnSummary(
            name=name,
            type=types.get(name) or str(data_type).lower(),
            nulls=nulls[name],
            description=descriptions.get(name, UNKNOWN_COLUMN),
        )
        for name, data_type in rows.collect_schema().items()
    ]


def describe_present_columns(config: str, files: Sequence[Path]) -> dict[str, str]:
    """Return the description of each column that has a value in some file.

    It reads the footers alone. A column whose footers do not count nulls is present.
    """
    descriptions = describe_columns(config)
    present: dict[str, str] = {}
    for file in files:
        parquet_file = open_parquet(file)
        metadata = parquet_file.metadata
        names = parquet_file.schema_arrow.names
        for row_group in map(metadata.row_group, range(metadata.num_row_groups)):
            for column in map(row_group.column, range(row_group.num_columns)):
                path = column.path_in_schema
                name = path if path in names else path.partition(".")[0]
                statistics = column.statistics
                counts_nulls = statistics is not None and statistics.has_null_count
                if not counts_nulls or statistics.null_count < column.num_values:
                    present[name] = descriptions.get(name, UNKNOWN_COLUMN)
    return present


def replace_column(table: pa.Table, name: str, values: Sequence[Any]) -> pa.Table:
    """Return a table of :func:`read_table` for solutions, with new values in one column.

    Raises:
        ValueError: if solutions have no such column.
    """
    own_schema = arrow_schema("solutions")
    if name not in own_schema.names:
        raise ValueError(
            f"solutions have no column {name!r}. Add the column to dataset/schema.toml first, or "
            f"choose one of {', '.join(own_schema.names)}."
        )
    field = own_schema.field(name)
    column = pa.array(values, type=field.type)
    return table.set_column(table.schema.get_field_index(name), field, column)


def problems_table(problems: Iterable[Problem]) -> pa.Table:
    """Return problems as a table."""
    rows = [problem.to_row() for problem in problems]
    return pa.Table.from_pylist(rows, schema=arrow_schema("problems"))


def to_table(config: str, rows: Iterable[Solution | Pair]) -> pa.Table:
    """Return solutions or pairs as a table; columns that are no fields of them are null."""
    schema = arrow_schema(config)
    fields = [field.name for field in dataclasses.fields(_ENTITIES[config])]
    # Values are gathered by column, because a dict for each of millions of solutions would take
    # as long as grading them.
    columns = list(zip(*map(attrgetter(*fields), rows), strict=True)) or [()] * len(fields)
    arrays = [
        pa.array(values, schema.field(name).type)
        for name, values in zip(fields, columns, strict=True)
    ]
    table = pa.table(arrays, fields)
    return conform(config, table, config)


def digest_bytes(text: str) -> bytes:
    """Return the bytes of a solution's text in the text digest of its file.

    A blank text has no steps and is read back as an empty text, so both have the same bytes.
    """
    return (text.encode() if text.strip() else b"") + b"\0"


def text_digest(completions: Iterable[pa.Array]) -> str:
    """Return the digest of the texts of solutions, whose steps are in the arrays of a column."""
    text_hash = hashlib.sha256()
    for column in completions:
        for steps in column.to_pylist():
            text_hash.update(digest_bytes("".join(step or "" for step in steps or ())))
    return text_hash.hexdigest()


def read_text_digest(file: Path) -> str:
    """Return the digest of the texts in a file of solutions."""
    return text_digest(
        batch.column(0) for batch in read_table_batches(file, columns=["completions"])
    )


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
