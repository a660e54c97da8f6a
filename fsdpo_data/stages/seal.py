"""Seal a dataset that somebody edited: rows dropped, a column added, values changed.

The edit happens in a copy of the dataset, with polars or `datasets` for example. The manifest of
the copy still has the facts about the stages, and the digest of the dataset before the edit.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import pydantic

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import SchemaError
from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.identity import RELEASE, file_sha256
from fsdpo_data.core.lazy import pa
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.parquet_files import open_parquet, parquet_errors
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.row_files import summarize_list
from fsdpo_data.dataset.card import dataset_card
from fsdpo_data.dataset.diff import count_changed_values
from fsdpo_data.dataset.manifest import (
    FileEntry,
    Manifest,
    StageCounts,
    StageRecord,
    files_digest,
    read_manifest,
)
from fsdpo_data.dataset.problem_rows import read_problems
from fsdpo_data.dataset.remote import local_paths
from fsdpo_data.dataset.run_directory import lock_run_directory
from fsdpo_data.dataset.schema import (
    CONFIGS,
    SCHEMA_VERSION,
    arrow_schema,
    conform,
    plain_type,
    text_digest,
    unknown_columns,
    write_parquet,
)
from fsdpo_data.dataset.stage import drop_empty_files, seal_dataset
from fsdpo_data.dataset.stage_registry import STAGES, Row, StageEntry
from fsdpo_data.dataset.statistics import DatasetStatistics
from fsdpo_data.selection.overlaps import OVERLAP_STAGE, update_overlaps

EDIT_STAGE = "edit"  #: Name of the entry of edits.


class SealOptions(Options):
    """Seal an edited copy of a dataset, so that all commands read it again.

    Edit the parquet files of a copy: drop rows, add columns, change values. The copy keeps its
    `manifest.json`. The command checks that ids resolve and that the rows fit together, computes
    all hashes again, and states in the manifest and on the card that the dataset was edited.

    Examples:
        fsdpo-data seal runs/edited --out runs/reviewed --parent runs/demo
    """

    folder: Annotated[Path, Option(positional=True)]
    """The edited copy: a folder with `manifest.json`, `problems`, `solutions` and, if it has pairs,
    `pairs`.
    """
    out: Annotated[str | Path, Option(in_digest=False, dataset="output")]
    """Directory or URL of the new dataset."""
    parent: Annotated[str | Path | None, Option(dataset="input")] = None
    """The dataset before the edit. With it, the manifest also names the columns whose values
    changed.
    """


class Edit(FileModel):
    """What is known of an edit."""

    parent: str  #: Digest of the dataset before the edit.
    #: Rows before and after the edit, by config, where the numbers differ.
    rows: dict[str, tuple[int, int]] = pydantic.Field(default_factory=dict)
    #: Columns that this release does not know, by config.
    columns: dict[str, list[str]] = pydantic.Field(default_factory=dict)
    #: Rows with another value, by config and column; empty if the parent was not named.
    changed: dict[str, dict[str, int]] = pydantic.Field(default_factory=dict)

    def describe(self) -> str:
        """Return the edit as the part of a sentence."""
        parts = [
            f"{config} from {n_old:,} to {n_new:,} rows"
            for config, (n_old, n_new) in self.rows.items()
        ]
        parts += [
            f"further columns of {config}: {', '.join(names)}"
            for config, names in self.columns.items()
        ]
        parts += [
            f"{count:,} values of {name} in {config}"
            for config, counts in self.changed.items()
            for name, count in counts.items()
        ]
        return "; ".join(parts) or "values of columns"


class EditSettings(FileModel):
    """The edits of a dataset, the first one first."""

    edits: list[Edit]  #: The edits.


#: The entry of edits.
EditRecord: TypeAlias = StageRecord[EditSettings, StageCounts]


def run_seal(options: SealOptions, progress: Progress) -> tuple[str | Path, Manifest]:
    """Check an edited dataset, and seal it as ``options.out``.

    Returns:
        The directory or the URL of the dataset, and its manifest.

    Raises:
        InputError: if the parent is another dataset.
        RunMismatchError: if ``out`` contains a run.
        SchemaError: if the folder has no manifest, or its rows do not fit together.
        StoreError: if ``out`` cannot be written.
    """
    with local_paths(options, progress) as local_options:
        root = Path(local_options.folder)
        out = Path(local_options.out)
        manifest = read_manifest(root)
        if local_options.parent is not None:
            _check_parent(local_options, manifest)
        files = {config: sorted((root / config).glob("*.parquet")) for config in CONFIGS}
        with lock_run_directory(out, {"edited": manifest.digest}, resume=False):
            try:
                _write_dataset(files, out, manifest, local_options.parent, progress)
            except BaseException:
                shutil.rmtree(out)  # the command starts again after a correction
                raise
        return options.out, read_manifest(out)


def _check_parent(options: SealOptions, manifest: Manifest) -> None:
    """Refuse a parent that is not the dataset before the edit."""
    if read_manifest(Path(str(options.parent))).digest != manifest.digest:
        raise options.field_error(
            "parent",
            f"this is not the dataset that {options.folder} was copied from: its digest is not "
            f"{manifest.digest}.",
        )


def _write_dataset(
    files: Mapping[str, Sequence[Path]],
    out: Path,
    manifest: Manifest,
    parent: str | Path | None,
    progress: Progress,
) -> None:
    """Write the files with plain types, and seal them."""
    progress.phase("seal", sum(map(len, files.values())))
    entries = []
    for config in CONFIGS:
        for number, file in enumerate(files[config]):
            path = f"{config}/train-{number:05d}-of-{len(files[config]):05d}.parquet"
            table = _read_edited(config, file)
            write_parquet(table, out / path)
            text_sha256 = (
                text_digest(table["completions"].chunks) if config == "solutions" else None
            )
            entries.append(FileEntry.from_file(out, path, table.num_rows, text_sha256))
            progress.advance(1)
    entries = drop_empty_files(out, entries)
    old_rows = manifest.rows._asdict()
    old_files = manifest.config_files("problems")
    edit = Edit(parent=manifest.digest)
    if not files["pairs"]:
        manifest.remove_writers({"pairs"})
    manifest.parent = manifest.digest
    manifest.files = entries
    manifest.digest = files_digest(entries)
    manifest.schema_version = SCHEMA_VERSION
    manifest.made_by = RELEASE
    _check_ids(out, manifest)
    _update_comparison(files["problems"], out, manifest, old_files, parent)
    edit.rows = {
        config: (old_rows[config], n_rows)
        for config, n_rows in manifest.rows._asdict().items()
        if n_rows != old_rows[config]
    }
    edit.columns = dict(_further_columns(out, manifest, parent))
    if parent is not None:
        edit.changed = count_changed_values(Path(parent), out, manifest)
    manifest.put(_edit_record(manifest, edit))
    seal_dataset(out, manifest, dataset_card)


def _update_comparison(
    files: Sequence[Path],
    out: Path,
    manifest: Manifest,
    old_files: Sequence[FileEntry],
    parent: str | Path | None,
) -> None:
    """Remove what the manifest says about benchmarks, unless no problem can be new."""
    if [file_sha256(file) for file in files] == [entry.sha256 for entry in old_files]:
        return
    ids = read_problems(manifest.config_paths(out, "problems")).keys()
    old_ids: Collection[str] = ()
    if parent is not None:
        old_ids = read_problems(read_manifest(Path(parent)).config_paths(Path(parent), "problems"))
    if set(ids) <= set(old_ids):
        update_overlaps(manifest, len(ids))
    else:
        manifest.remove(OVERLAP_STAGE)


def _edit_record(manifest: Manifest, edit: Edit) -> EditRecord:
    """Return the entry of all edits of a dataset."""
    earlier = manifest.find(EDIT_STAGE, EditRecord)
    edits = [*(earlier.options.edits if earlier else ()), edit]
    return EditRecord(name=EDIT_STAGE, options=EditSettings(edits=edits), counts=StageCounts())


def _read_edited(config: str, file: Path) -> pa.Table:
    """Read an edited file; columns get the types of the schema, and further ones plain types.

    Raises:
        SchemaError: if the file is damaged, or a column does not fit its type.
    """
    with parquet_errors(str(file), SchemaError):
        table = open_parquet(file).read()
    own_schema = arrow_schema(config)
    columns = []
    for column in table.schema:
        wanted_type = plain_type(column.type)
        if column.name in own_schema.names:
            wanted_type = own_schema.field(column.name).type
        try:
            columns.append(table[column.name].cast(wanted_type))
        except pa.ArrowException as error:
            raise SchemaError(
                f"{file}: the column {column.name} is {column.type}, and not every value is a "
                f"{wanted_type} ({error})."
            ) from None
    return conform(config, pa.table(columns, table.column_names), str(file))


def _check_ids(root: Path, manifest: Manifest) -> None:
    """Check that the ids of problems fit their content."""
    problems: dict[str, Problem] = read_problems(manifest.config_paths(root, "problems"))
    changed = [key for key, problem in problems.items() if problem.id != key]
    if changed:
        raise SchemaError(
            f"the question or the answer of {len(changed)} problems was changed, so their ids no "
            f"longer fit: {summarize_list(changed)}. An id is the digest of question and answer. "
            "Build or import a dataset of the new problems."
        )


def _further_columns(
    root: Path, manifest: Manifest, parent: str | Path | None
) -> Iterator[tuple[str, list[str]]]:
    """Yield the unknown columns of each config that the parent, if it is known, does not have."""
    for config in CONFIGS:
        names = set(_unknown_names(root, manifest, config))
        if parent is not None:
            names -= set(_unknown_names(Path(parent), read_manifest(Path(parent)), config))
        if names:
            yield config, sorted(names)


def _unknown_names(root: Path, manifest: Manifest, config: str) -> list[str]:
    """Return the columns of a config that this release does not know."""
    files = manifest.config_paths(root, config)
    return unknown_columns(config, open_parquet(files[0]).schema_arrow.names) if files else []


def _summarize(record: EditRecord, statistics: DatasetStatistics) -> list[Row]:
    """Return the rows of the summary."""
    return [("edited", edit.describe()) for edit in record.options.edits]


STAGES.register(
    StageEntry(
        name=EDIT_STAGE,
        record=EditRecord,
        summarize=_summarize,
        card_row="{% for edit in edits %}| edited | by hand, from the dataset "
        "{{ edit.parent | code }} |{{ '\n' if not loop.last }}{% endfor %}",
    )
)
