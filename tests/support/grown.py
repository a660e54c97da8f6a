"""Datasets with more columns than this release knows: of a newer release, or of a user."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from helpers import seal_json

from fsdpo_data.core.identity import file_sha256
from fsdpo_data.dataset.manifest import FileEntry, files_digest
from fsdpo_data.dataset.schema import SCHEMA_VERSION, VERSION_KEY, arrow_schema, scan_rows

#: Columns that identify the rows of each config.
ID_COLUMNS = {
    "problems": ["problem_id"],
    "solutions": ["solution_id"],
    "pairs": ["chosen_id", "rejected_id"],
}


def grow(
    dataset: Path,
    out: Path,
    columns: Mapping[str, Mapping[str, pa.DataType]],
    *,
    version: str = SCHEMA_VERSION,
    drop: Sequence[str] = (),
    **manifest_keys: Any,
) -> Path:
    """Copy a dataset, and seal the copy with further columns, whose values are digests of rows.

    Args:
        dataset: A sealed dataset.
        out: The copy.
        columns: Types of the new columns by name, by config.
        version: Schema version of the copy.
        drop: Columns of solutions that the copy lacks.
        manifest_keys: New keys of the manifest.
    """
    shutil.copytree(dataset, out)
    manifest = json.loads((out / "manifest.json").read_text())
    for entry in manifest["files"]:
        file = out / entry["path"]
        config = entry["path"].partition("/")[0]
        table = pq.read_table(file)
        for name, data_type in columns.get(config, {}).items():
            values = [made_up_value(str(row), name, data_type) for row in table.to_pylist()]
            table = table.append_column(name, pa.array(values, type=data_type))
        table = table.drop_columns([name for name in drop if config == "solutions"])
        pq.write_table(table.replace_schema_metadata({VERSION_KEY: version}), file)
        entry |= {"sha256": file_sha256(file), "bytes": file.stat().st_size}
    manifest |= {"schema_version": version, **manifest_keys}
    manifest["digest"] = files_digest([FileEntry(**entry) for entry in manifest["files"]])
    (out / "manifest.json").write_text(seal_json(manifest))
    return out


def made_up_value(row: str, name: str, data_type: pa.DataType) -> Any:
    """Return a value that depends on the row; every fourth one is null."""
    number = sum((name + row).encode())
    if number % 4 == 0:
        return None
    if pa.types.is_list(data_type):
        return [number, number + 1]
    return f"value {number}" if pa.types.is_string(data_type) else number


def read_rows(dataset: Path, config: str) -> pl.DataFrame:
    """Return the rows of a config, sorted by id."""
    files = sorted((dataset / config).glob("*.parquet"))
    return scan_rows(config, files).collect().sort(ID_COLUMNS[config])


def known_rows(dataset: Path, config: str) -> pl.DataFrame:
    """Return the rows of a config with only the columns of this release."""
    return read_rows(dataset, config).select(arrow_schema(config).names)
