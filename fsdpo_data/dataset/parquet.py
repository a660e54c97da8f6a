"""Parquet files of a dataset, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fsdpo_data.core.files import explained, publish

if TYPE_CHECKING:
    import pyarrow as pa


def text_bytes(text: str) -> bytes:
    """Return what a solution adds to a shard's text digest.

    A blank text has no steps, so it must count like the empty one it is read back as.
    """
    return (text.encode() if text.strip() else b"") + b"\0"


def write_parquet(table: pa.Table, target: Path) -> None:
    """Write a table under a temporary name, sync it, rename it: whole or not at all.

    Pages are cut by content, so that a store which keeps equal chunks once (the Hub's does) is
    sent only what a later version of the dataset changes.
    """
    import pyarrow.parquet as pq

    with explained(target.parent, saved=0):
        temporary = target.with_name(target.name + ".tmp")
        pq.write_table(
            table,
            temporary,
            compression="zstd",
            use_content_defined_chunking=True,
            write_page_index=True,  # the Hub's viewer reads single pages
        )
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        publish(temporary, target)
