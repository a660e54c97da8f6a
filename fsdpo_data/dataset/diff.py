"""What differs between two datasets: rows by their ids, and what is said about those in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsdpo_data.core.lazy import pl
from fsdpo_data.core.row_files import scan_parquet
from fsdpo_data.core.toml_tables import read_toml
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.run import differing_keys
from fsdpo_data.dataset.schema import CONFIGS
from fsdpo_data.dataset.validate import check_files


@dataclass(frozen=True, slots=True)
class ConfigDiff:
    """How the rows of one config differ."""

    added: int  #: Rows that only the second dataset has.
    removed: int  #: Rows that only the first has.
    kept: int  #: Rows of both.
    changed: Mapping[str, int]  #: Rows of both of which something else is said, by what.

    def __bool__(self) -> bool:
        """Whether anything differs."""
        return bool(self.added or self.removed or any(self.changed.values()))


def diff_datasets(first: Path, second: Path) -> dict[str, ConfigDiff]:
    """Compare two datasets, config by config; SchemaError unless both are as they were sealed."""
    both = [(root, read_manifest(root)) for root in (first, second)]
    for root, manifest in both:
        check_files(root, manifest.files)
    return {
        config: _difference(
            config, *(manifest.config_paths(root, config) for root, manifest in both)
        )
        for config in CONFIGS
    }


def _difference(config: str, first: Sequence[Path], second: Sequence[Path]) -> ConfigDiff:
    parts = read_toml(__file__)[config]
    old, new = (_hash_rows(files, parts) for files in (first, second))
    both = old.join(new, on="id", suffix="_new")
    names = [name for name in parts if name != "id"]
    changed = {name: int((both[name] != both[f"{name}_new"]).sum()) for name in names}
    kept = both.height
    return ConfigDiff(new.height - kept, old.height - kept, kept, changed)


def _hash_rows(files: Sequence[Path], parts: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Return hashes of 64 bits of each row's id, and of what can be said of it otherwise."""
    hashes = {part: pl.struct(columns).hash() for part, columns in parts.items()}
    empty = pl.DataFrame(schema=dict.fromkeys(parts, pl.UInt64))
    return pl.concat([empty, *(scan_parquet([file]).select(**hashes).collect() for file in files)])


def spec_changes(first: Path, second: Path) -> list[tuple[str, Any, Any]]:
    """Return (key, first, second) wherever the datasets were made otherwise, digests aside."""
    old, new = (read_manifest(root).spec.without_digest() for root in (first, second))
    return differing_keys(old, new)
