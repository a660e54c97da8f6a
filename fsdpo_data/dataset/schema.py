"""Schema 1: what a row is, and the files of it; see README, "Data model"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from fsdpo_data.core.entities import Pair, Problem, Solution
from fsdpo_data.core.files import write_file
from fsdpo_data.core.lazy import pa, pq
from fsdpo_data.core.toml_tables import read_toml

#: Major version of the columns below; in manifests, parquet footers and Hub tags.
SCHEMA_VERSION = 1
VERSION_KEY = "fsdpo_schema_version"  #: Key of the schema version in a parquet footer.
CONFIGS = ("problems", "solutions", "pairs")
#: Columns of solutions that datasets of version 1 may lack: nothing is known there.
OPTIONAL_COLUMNS = ("thinking_closed", "thinking_tokens")


@cache
def arrow_schema(config: str) -> pa.Schema:
    """Return the columns of ``problems``, ``solutions`` or ``pairs``; the footer holds the version.

    They stand in ``schema.toml``.
    """
    columns = {name: _arrow_type(told) for name, told in read_toml(__file__)[config].items()}
    return pa.schema(columns, metadata={VERSION_KEY: str(SCHEMA_VERSION)})


def _arrow_type(told: Any) -> pa.DataType:
    if isinstance(told, list):
        return pa.list_(_arrow_type(told[0]))
    if isinstance(told, dict):
        return pa.struct([(name, _arrow_type(each)) for name, each in told.items()])
    return pa.type_for_alias(told)


def replace_column(table: pa.Table, name: str, values: Sequence[Any]) -> pa.Table:
    """Return a table of solutions with other values in a column, and those that it may lack."""
    schema = arrow_schema("solutions")
    index = schema.get_field_index(name)
    column = pa.array(values, type=schema.field(index).type)
    table = table.set_column(index, schema.field(index), column).cast(
        pa.schema(list(schema)[: table.num_columns])
    )
    return pa.concat_tables([schema.empty_table(), table], promote_options="default")


def problems_table(problems: Iterable[Problem]) -> pa.Table:
    """Return problems as a table."""
    rows = [each.to_row() for each in problems]
    return pa.Table.from_pylist(rows, schema=arrow_schema("problems"))


def to_table(config: str, rows: Iterable[Solution | Pair]) -> pa.Table:
    """Return solutions or pairs as a table."""
    schema = arrow_schema(config)
    # A dict for each of millions of solutions would take as long as grading them.
    columns = list(zip(*map(attrgetter(*schema.names), rows), strict=True)) or [()] * len(schema)
    arrays = [pa.array(*each) for each in zip(columns, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def digest_bytes(text: str) -> bytes:
    """Return what a solution adds to a shard's text digest.

    A blank text has no steps, so it must count like the empty one it is read back as.
    """
    return (text.encode() if text.strip() else b"") + b"\0"


def write_parquet(table: pa.Table, target: Path) -> None:
    """Write a table, whole or not at all, its folder too.

    Pages are cut by content, so that a store which keeps equal chunks once (the Hub's does) is
    sent only what a later version of the dataset changes.
    """
    # In memory first: where a disk is full, Arrow's own files abort the process.
    written = pa.BufferOutputStream()
    pq.write_table(
        table,
        written,
        compression="zstd",
        use_content_defined_chunking=True,
        write_page_index=True,  # the Hub's viewer reads single pages
    )
    write_file(target, written.getvalue())
