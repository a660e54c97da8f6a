"""Compare two datasets: rows added, removed and changed, and options that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows, open_parquet
from fsdpo_data.core.toml_tables import read_module_table
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.run_directory import KeyChange, differing_keys
from fsdpo_data.dataset.schema import CONFIGS, arrow_schema, scan_rows, unknown_columns
from fsdpo_data.dataset.validate import check_files, explain_damage

#: Names that no column of a user has: of the hash of an id, and the end of names of new values.
_KEY = " id"
_NEW = " new"


@dataclass(frozen=True, slots=True)
class ConfigDiff:
    """The difference between the rows of one config in two datasets."""

    added: int  #: Rows that only the second dataset has.
    removed: int  #: Rows that only the first dataset has.
    common: int  #: Rows that both datasets have, changed or not.
    #: Rows in both datasets with a changed value, by group of columns (see ``diff.toml``), and by
    #: each column that no group has.
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
    columns_by_part = parts_of_rows(config)
    for files in (first, second):
        names = open_parquet(files[0]).schema_arrow.names if files else []
        columns_by_part |= {name: [name] for name in unknown_columns(config, names)}
    return _compare_rows(config, first, second, columns_by_part)


def _compare_rows(
    config: str,
    first: Sequence[Path],
    second: Sequence[Path],
    columns_by_part: Mapping[str, Sequence[str]],
) -> ConfigDiff:
    """Compare the rows of two lists of files by their ids, part by part."""
    old_rows = _hash_rows(config, first, columns_by_part)
    new_rows = _hash_rows(config, second, columns_by_part)
    common_rows = old_rows.join(new_rows, on=_KEY, suffix=_NEW)
    changed = {
        part: int((common_rows[part] != common_rows[f"{part}{_NEW}"]).sum())
        for part in columns_by_part
        if part != _KEY
    }
    return ConfigDiff(
        added=new_rows.height - common_rows.height,
        removed=old_rows.height - common_rows.height,
        common=common_rows.height,
        changed=changed,
    )


def parts_of_rows(config: str) -> dict[str, Sequence[str]]:
    """Return the columns of each part of ``diff.toml``; those of the id are under ``_KEY``."""
    parts = dict(read_module_table(__file__)[config])
    id_columns = parts.pop("id")
    grouped_columns = {*id_columns, *parts.pop("determined"), *chain.from_iterable(parts.values())}
    other_columns = [name for name in arrow_schema(config).names if name not in grouped_columns]
    return {_KEY: id_columns, **parts, **{name: [name] for name in other_columns}}


def _hash_rows(
    config: str, files: Sequence[Path], columns_by_part: Mapping[str, Sequence[str]]
) -> pl.DataFrame:
    """Return 64-bit hashes of the ``id`` and of every other part of each row.

    A column that the files lack is null.
    """
    frames = [pl.DataFrame(schema=dict.fromkeys(columns_by_part, pl.UInt64))]
    for file in files:
        rows = scan_rows(config, [file])
        names = rows.collect_schema().names()
        columns = {name for part in columns_by_part.values() for name in part}
        rows = rows.with_columns(pl.lit(None).alias(name) for name in columns - {*names})
        hashes = [_hash_columns(part).alias(name) for name, part in columns_by_part.items()]
        frames.append(collect_rows(rows.select(hashes)))
    return pl.concat(frames)


def _hash_columns(names: Sequence[str]) -> pl.Expr:
    """Return the hash of some columns; a row of nulls has the hash 0, whatever their types."""
    is_null = pl.all_horizontal(pl.col(names).is_null())
    return pl.when(is_null).then(pl.lit(0, pl.UInt64)).otherwise(pl.struct(names).hash())


def count_changed_values(
    first: Path, second: Path, second_manifest: Manifest
) -> dict[str, dict[str, int]]:
    """Return by config and column the rows of both datasets that have another value.

    Columns of one dataset alone are left out.

    Args:
        first: A sealed dataset.
        second: Directory of another dataset, which needs no manifest.
        second_manifest: Its manifest.
    """
    first_manifest = read_manifest(first)
    counts: dict[str, dict[str, int]] = {}
    for config in CONFIGS:
        old_files = first_manifest.config_paths(first, config)
        new_files = second_manifest.config_paths(second, config)
        if not (old_files and new_files):
            continue
        old_names, new_names = (
            scan_rows(config, files).collect_schema().names() for files in (old_files, new_files)
        )
        id_columns = parts_of_rows(config)[_KEY]
        names = [name for name in old_names if name in new_names and name not in id_columns]
        parts = {name: [name] for name in names} | {_KEY: id_columns}
        changed = _compare_rows(config, old_files, new_files, parts).changed
        if present := {name: count for name, count in changed.items() if count}:
            counts[config] = present
    return counts


def option_changes(first: Path, second: Path) -> list[KeyChange]:
    """Return the options that differ between two datasets, by stage."""
    return differing_keys(read_manifest(first).options, read_manifest(second).options)
