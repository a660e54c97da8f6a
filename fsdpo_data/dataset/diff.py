"""Compare two datasets: rows added, removed and changed, and options that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows, scan_parquet
from fsdpo_data.core.toml_tables import read_toml
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.run_directory import KeyChange, differing_keys
from fsdpo_data.dataset.schema import CONFIGS
from fsdpo_data.dataset.validate import check_files, explain_damage


@dataclass(frozen=True, slots=True)
class ConfigDiff:
    """The difference between the rows of one config in two datasets."""

    added: int  #: Rows that only the second dataset has.
    removed: int  #: Rows that only the first dataset has.
    common: int  #: Rows that both datasets have, changed or not.
    #: Rows in both datasets with a changed value, by group of columns (see ``diff.toml``).
    changed: Mapping[str, int]

    def __bool__(self) -> bool:
        """Whether a row or a compared column differs."""
        return bool(self.added or self.removed or any(self.changed.values()))


def diff_datasets(first: Path, second: Path) -> dict[str, ConfigDiff]:
    """Compare two datasets, config by config.

    Raises:
        SchemaError: if a file of either dataset is missing or differs from its digest.
    """
    first_manifest = read_manifest(first)
    second_manifest = read_manifest(second)
    check_files(first, first_manifest.files)
    check_files(second, second_manifest.files)
    with explain_damage(first), explain_damage(second):
        return {
            config: _diff_config(
                config,
                first_manifest.config_paths(first, config),
                second_manifest.config_paths(second, config),
            )
            for config in CONFIGS
        }


def _diff_config(config: str, first: Sequence[Path], second: Sequence[Path]) -> ConfigDiff:
    """Compare the rows of one config, given its files in both datasets."""
    columns_by_part = read_toml(__file__)[config]
    old_rows = _hash_rows(first, columns_by_part)
    new_rows = _hash_rows(second, columns_by_part)
    common_rows = old_rows.join(new_rows, on="id", suffix="_new")
    changed = {
        part: int((common_rows[part] != common_rows[f"{part}_new"]).sum())
        for part in columns_by_part
        if part != "id"
    }
    return ConfigDiff(
        added=new_rows.height - common_rows.height,
        removed=old_rows.height - common_rows.height,
        common=common_rows.height,
        changed=changed,
    )


def _hash_rows(files: Sequence[Path], columns_by_part: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Return 64-bit hashes of the ``id`` and of every other part of each row."""
    hashes = [pl.struct(columns).hash().alias(part) for part, columns in columns_by_part.items()]
    empty = pl.DataFrame(schema=dict.fromkeys(columns_by_part, pl.UInt64))
    hashed_files = [collect_rows(scan_parquet([file]).select(hashes)) for file in files]
    return pl.concat([empty, *hashed_files])


def option_changes(first: Path, second: Path) -> list[KeyChange]:
    """Return the options that differ between two datasets, by stage."""
    return differing_keys(read_manifest(first).options, read_manifest(second).options)
