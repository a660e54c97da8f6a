"""Where training rows come from: a sealed dataset, a dataset on the Hub, or a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import file_sha256

Row = Mapping[str, Any]
#: A row and where it stands, for messages.
PlacedRow = tuple[str, Row]


@dataclass(frozen=True, slots=True)
class Source:
    """Rows to train on.

    Attributes:
        identity: What identifies them by content.
        rows: Reads them; may be called again.
        dataset: Whether they have all columns of a config of the schema.
        said: What the dataset says of its making (``dataset``, ``prm``), for the model card.
    """

    identity: str
    rows: Callable[[], Iterator[PlacedRow]]
    dataset: bool = True
    said: Mapping[str, str] = field(default_factory=dict)


def open_source(data: Path, config: str, columns: Sequence[str], needed: str) -> Source:
    """Find the rows that ``data`` names.

    Args:
        data: A sealed dataset, a JSONL or parquet file, or ``org/name[@revision]`` on the Hub.
        config: The config of a dataset that is read.
        columns: Its columns to read.
        needed: What a file needs in their place, for messages.

    Raises:
        InputError: if there are none.
        SchemaError: if the dataset is not sealed, or its rows were changed since.
        Unavailable: if the Hub cannot be reached, or refuses.
    """
    from fsdpo_data.hub.client import HubRepo

    if data.is_dir():
        return _sealed(data, config, columns)
    if data.is_file() and data.suffix in (".jsonl", ".parquet"):
        return Source("sha256:" + file_sha256(data), lambda: _file_rows(data), dataset=False)
    if not data.exists() and HubRepo.parse(str(data), "dataset") is not None:
        return _on_hub(f"{data}:{config}")
    raise InputError(
        f"expected a sealed dataset with {config}, a .jsonl or .parquet file with the columns "
        f"{needed}, or org/name of a dataset on the Hub.",
        field="data",
        value=str(data),
    )


def _sealed(root: Path, config: str, columns: Sequence[str]) -> Source:
    from fsdpo_data.dataset.manifest import read_manifest
    from fsdpo_data.dataset.validate import check_files

    manifest = read_manifest(root)
    files = manifest.of_config(config)
    if not files:
        raise InputError(
            f"has no {config}. Score and pair it first: fsdpo-data score {root} --prm PATH --out "
            "SCORED, then fsdpo-data pair SCORED --out NEW.",
            field="data",
            value=str(root),
        )
    # They are all that is read, so a copy without the rest will do.
    check_files(root, files)
    said = {"dataset": manifest.digest}
    if manifest.spec.score:
        prm = manifest.spec.score.prm
        said["prm"] = f"{prm.name}@{prm.revision}"
    shards = manifest.paths(root, config)
    return Source(manifest.digest, lambda: _shards(shards, columns), said=said)


def _shards(files: Sequence[Path], columns: Sequence[str]) -> Iterator[PlacedRow]:
    import polars as pl

    for file in files:
        rows = pl.read_parquet(file, columns=list(columns), glob=False)
        for number, row in enumerate(rows.iter_rows(named=True), 1):
            yield f"{file}, row {number}", row


def _file_rows(file: Path) -> Iterator[PlacedRow]:
    from fsdpo_data.core.rows import read_records

    for record in read_records(file):
        place = f"{file}, row {record.row}"
        if record.broken:
            raise InputError(f"{place}: {record.broken}. Mend the row, or leave it out.")
        yield place, record.fields


def _on_hub(name: str) -> Source:
    from fsdpo_data.problems.hub_datasets import HubSource, load_hub

    source = HubSource.parse(name, {})
    assert source is not None  # the caller has parsed the name
    commit, parts = load_hub(source, "train")
    identity = f"{source.repo.name}@{commit}"
    (label, records), *_ = parts  # of the one config that was asked for
    placed = [(f"{label}, row {each.row}", each.fields) for each in records]
    return Source(identity, lambda: iter(placed), said={"dataset": identity})
