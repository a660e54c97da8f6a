"""Schema 1: the columns of the three configs, and the parquet files that store them.

The README describes the columns in its section "Data model".
"""

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

#: Major version of the columns in ``schema.toml``. Manifests, parquet footers and Hub tags have it.
SCHEMA_VERSION = 1
VERSION_KEY = "fsdpo_schema_version"  #: Key of the schema version in a parquet footer.
CONFIGS = ("problems", "solutions", "pairs")
#: Columns that solutions of schema 1 may lack, because early datasets did not record them.
OPTIONAL_COLUMNS = ("thinking_closed", "thinking_tokens")


@cache
def arrow_schema(config: str) -> pa.Schema:
    """Return the Arrow schema of ``problems``, ``solutions`` or ``pairs``.

    ``schema.toml`` lists the columns. The metadata, which parquet footers store, has the version.
    """
    column_types = read_toml(__file__)[config]
    columns = {name: _arrow_type(type_spec) for name, type_spec in column_types.items()}
    return pa.schema(columns, metadata={VERSION_KEY: str(SCHEMA_VERSION)})


def _arrow_type(type_spec: Any) -> pa.DataType:
    """Return the Arrow type for a name, a list of one type, or a table of struct fields."""
    if isinstance(type_spec, list):
        return pa.list_(_arrow_type(type_spec[0]))
    if isinstance(type_spec, dict):
        return pa.struct([(name, _arrow_type(spec)) for name, spec in type_spec.items()])
    return pa.type_for_alias(type_spec)


def replace_column(table: pa.Table, name: str, values: Sequence[Any]) -> pa.Table:
    """Return a table of solutions with new values in one column.

    Missing optional columns are added, filled with nulls.
    """
    schema = arrow_schema("solutions")
    index = schema.get_field_index(name)
    column = pa.array(values, type=schema.field(index).type)
    table = table.set_column(index, schema.field(index), column).cast(
        pa.schema(list(schema)[: table.num_columns])
    )
    return pa.concat_tables([schema.empty_table(), table], promote_options="default")


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
        compression="zstd",
        use_content_defined_chunking=True,
        write_page_index=True,  # the Hub's viewer reads single pages
    )
    write_file(target, buffer.getvalue())
