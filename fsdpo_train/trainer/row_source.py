"""Where training rows come from: a sealed dataset, a dataset on the Hub, or a file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.row_files import read_records
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.validate import check_files
from fsdpo_data.problems.hub_datasets import HubSource, load_hub

Row = Mapping[str, Any]
LocatedRow = tuple[str, Row]  #: A row and where it stands, for messages.


@dataclass(frozen=True, slots=True)
class RowSource:
    """Rows to train on."""

    identity: str
    rows: Callable[[], Iterator[LocatedRow]]  #: Reads them; may be called again.
    is_dataset: bool = True  #: Whether they have all columns of a config of the schema.
    #: What the dataset says of its making (``dataset``, ``prm``), for the model card.
    provenance: Mapping[str, str] = field(default_factory=dict)


def open_source(
    data: Path, columns: Sequence[str], config: str = "", optional_columns: Sequence[str] = ()
) -> RowSource:
    """Find the rows that ``data`` names.

    That is a JSONL or parquet file, ``org/name[@revision]`` on the Hub, or the ``config`` of a
    sealed dataset, if one has such rows. A row needs ``columns``; of it ``more`` is read as well.

    Raises:
        InputError: if there are none.
        SchemaError: if the dataset is not sealed, or its rows were changed since.
        Unavailable: if the Hub cannot be reached, or refuses.
    """
    if config and data.is_dir():
        return _open_sealed(data, config, [*columns, *optional_columns])
    if data.is_file() and data.suffix in (".jsonl", ".json", ".parquet"):
        return RowSource("sha256:" + file_sha256(data), lambda: _file_rows(data), is_dataset=False)
    on_hub = HubSource.parse(f"{data}:{config}" if config else str(data), {})
    if not data.exists() and on_hub is not None:
        return _open_hub_dataset(on_hub, bool(config))
    sealed = f"a sealed dataset with {config}, " if config else ""
    export = f" `fsdpo-data export {data} --to trl-sft` makes one." if data.is_dir() else ""
    raise InputError(
        f"expected {sealed}a .jsonl or .parquet file with the columns {', '.join(columns)}, "
        f"or org/name of a dataset on the Hub.{export}",
        field="data",
        value=str(data),
    )


def _open_sealed(root: Path, config: str, columns: Sequence[str]) -> RowSource:
    manifest = read_manifest(root)
    files = manifest.config_files(config)
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
    shards = manifest.config_paths(root, config)
    return RowSource(manifest.digest, lambda: _shard_rows(shards, columns), provenance=said)


def _shard_rows(files: Sequence[Path], columns: Sequence[str]) -> Iterator[LocatedRow]:
    for file in files:
        rows = pl.read_parquet(file, columns=list(columns), glob=False)
        for number, row in enumerate(rows.iter_rows(named=True), 1):
            yield f"{file}, row {number}", row


def _file_rows(file: Path) -> Iterator[LocatedRow]:
    for record in read_records(file):
        place = f"{file}, row {record.row_number}"
        if record.error:
            raise InputError(f"{place}: {record.error}. Mend the row, or leave it out.")
        yield place, record.fields


def _open_hub_dataset(source: HubSource, dataset: bool) -> RowSource:
    commit, ((label, records),) = load_hub(source, "train")
    identity = f"{source.repo.name}@{commit}"
    placed = [(f"{label}, row {each.row_number}", each.fields) for each in records]
    return RowSource(identity, lambda: iter(placed), dataset, {"dataset": identity})
