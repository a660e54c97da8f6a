"""What differs between two datasets: rows by their ids, and what is said about those in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.rows import scan
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.run import differing_keys
from fsdpo_data.dataset.schema import CONFIGS, arrow_schema
from fsdpo_data.dataset.validate import check_files

if TYPE_CHECKING:
    import polars as pl

_IDS: Mapping[str, Sequence[str]] = {
    "problems": ("problem_id",),
    "solutions": ("solution_id",),
    "pairs": ("chosen_id", "rejected_id"),
}
#: What a row in both can have otherwise, and the columns that show it. A problem's id covers its
#: texts, so of a problem only what is known beside them can differ.
_CHANGES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "problems": {"described otherwise": ("source", "split", "metadata")},
    "solutions": {
        "rewritten": ("completions",),
        "regraded": ("outcome", "answer"),
        "relabelled": ("labels", "rollouts"),
        "rescored": ("step_rewards",),
    },
    "pairs": {
        "rewritten": ("chosen_steps", "rejected_steps"),
        "rescored": ("chosen_rewards", "rejected_rewards"),
    },
}


@dataclass(frozen=True, slots=True)
class Difference:
    """How the rows of one config differ.

    Attributes:
        added: Rows that only the second dataset has.
        removed: Rows that only the first has.
        kept: Rows of both.
        changed: Rows of both of which something else is said, by what.
    """

    added: int
    removed: int
    kept: int
    changed: Mapping[str, int]

    def __bool__(self) -> bool:
        """Whether anything differs."""
        return bool(self.added or self.removed or any(self.changed.values()))


def diff(first: Path, second: Path) -> dict[str, Difference]:
    """Compare two sealed datasets, config by config.

    Raises:
        SchemaError: if one of them is no sealed dataset, or was changed since.
    """
    both = [(root, read_manifest(root)) for root in (first, second)]
    for root, manifest in both:
        check_files(root, manifest.files)
    return {
        config: _difference(config, *(manifest.paths(root, config) for root, manifest in both))
        for config in CONFIGS
    }


def _difference(config: str, first: Sequence[Path], second: Sequence[Path]) -> Difference:
    import polars as pl

    ids, changes = list(_IDS[config]), _CHANGES[config]
    columns = [*ids, *(name for names in changes.values() for name in names)]
    old, new = (_rows(files, config).select(columns) for files in (first, second))
    both = old.join(new, on=ids, suffix="_new")
    differs = {
        change: pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}_new")) for name in names)
        for change, names in changes.items()
    }
    counted = both.select(pl.len().alias("kept"), **{k: e.sum() for k, e in differs.items()})
    kept, *counts = counted.collect().row(0)
    return Difference(
        added=_count(new.join(old, on=ids, how="anti")),
        removed=_count(old.join(new, on=ids, how="anti")),
        kept=kept,
        changed=dict(zip(changes, counts, strict=True)),
    )


def _rows(files: Sequence[Path], config: str) -> pl.LazyFrame:
    """Return a config's rows; none if the dataset does not have it."""
    import polars as pl

    if files:
        return scan(files)
    empty = pl.from_arrow(arrow_schema(config).empty_table())
    assert isinstance(empty, pl.DataFrame)
    return empty.lazy()


def _count(rows: pl.LazyFrame) -> int:
    import polars as pl

    return int(rows.select(pl.len()).collect().item())


def changed_specs(first: Path, second: Path) -> list[tuple[str, Any, Any]]:
    """Return (key, first, second) wherever the datasets were made otherwise, digests aside."""
    old, new = (read_manifest(root).spec.decided() for root in (first, second))
    return differing_keys(old, new)
