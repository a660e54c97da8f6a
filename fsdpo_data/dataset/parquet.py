"""Parquet files of a dataset, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fsdpo_data.core.files import explained, write_atomic

if TYPE_CHECKING:
    import pyarrow as pa


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
    import pyarrow as pa
    import pyarrow.parquet as pq

    with explained(target.parent, saved=0):
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
