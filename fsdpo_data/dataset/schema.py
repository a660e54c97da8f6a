"""Schema 1: what a row is, and the files of it; see README, "Data model"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from fsdpo_data.core.files import explained, write_atomic
from fsdpo_data.core.lazy import pa, pq
from fsdpo_data.core.nouns import Pair, Problem, Solution

#: Major version of the columns below; in manifests, parquet footers and Hub tags.
SCHEMA_VERSION = 1
VERSION_KEY = "fsdpo_schema_version"  #: Key of the schema version in a parquet footer.
CONFIGS = ("problems", "solutions", "pairs")
#: Columns of solutions that datasets of version 1 may lack: nothing is known there.
LATER = ("thinking_closed", "thinking_tokens")


def arrow_schema(config: str) -> pa.Schema:
    """Return the columns of ``problems``, ``solutions`` or ``pairs``; the footer holds the version.

    Only plain Arrow types, so that ``datasets``, polars, pandas and DuckDB read them as they are.
    """
    text, texts, numbers = pa.string(), pa.list_(pa.string()), pa.list_(pa.float32())
    counts = pa.struct([("n", pa.int32()), ("n_correct", pa.int32())])
    problems = ("problem_id", "source", "split", "question", "answer", "metadata")
    pairs = ("problem_id", "chosen_id", "rejected_id", "prompt", "chosen", "rejected")
    columns: dict[str, dict[str, pa.DataType]] = {
        "problems": dict.fromkeys(problems, text),
        "solutions": {
            "solution_id": text,
            "problem_id": text,
            "sample_index": pa.int32(),
            "prompt": text,
            "completions": texts,
            "finish_reason": text,
            "n_tokens": pa.int32(),
            "answer": text,
            "outcome": text,
            "labels": pa.list_(pa.bool_()),
            "rollouts": pa.list_(counts),
            "step_rewards": numbers,
            "thinking_closed": pa.bool_(),
            "thinking_tokens": pa.int32(),
        },
        "pairs": {
            **dict.fromkeys(pairs, text),
            **dict.fromkeys(("chosen_steps", "rejected_steps"), texts),
            **dict.fromkeys(("chosen_rewards", "rejected_rewards"), numbers),
        },
    }
    return pa.schema(columns[config], metadata={VERSION_KEY: str(SCHEMA_VERSION)})


def with_column(table: pa.Table, name: str, values: Sequence[Any]) -> pa.Table:
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
    rows = [each.row() for each in problems]
    return pa.Table.from_pylist(rows, schema=arrow_schema("problems"))


def to_table(config: str, rows: Iterable[Solution | Pair]) -> pa.Table:
    """Return solutions or pairs as a table."""
    schema = arrow_schema(config)
    # A dict for each of millions of solutions would take as long as grading them.
    columns = list(zip(*map(attrgetter(*schema.names), rows), strict=True)) or [()] * len(schema)
    arrays = [pa.array(*each) for each in zip(columns, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def text_bytes(text: str) -> bytes:
    """Return what a solution adds to a shard's text digest.

    A blank text has no steps, so it must count like the empty one it is read back as.
    """
    return (text.encode() if text.strip() else b"") + b"\0"


def write_parquet(table: pa.Table, target: Path) -> None:
    """Write a table, whole or not at all.

    Pages are cut by content, so that a store which keeps equal chunks once (the Hub's does) is
    sent only what a later version of the dataset changes.
    """
    with explained(target.parent):
        # In memory first: where a disk is full, Arrow's own files abort the process.
        written = pa.BufferOutputStream()
        pq.write_table(
            table,
            written,
            compression="zstd",
            use_content_defined_chunking=True,
            write_page_index=True,  # the Hub's viewer reads single pages
        )
        write_atomic(target, written.getvalue())
