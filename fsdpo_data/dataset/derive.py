"""Derive a sealed dataset from a sealed dataset with stages, in one go or in shards.

If a stage is stopped, ``resume`` continues with the first unwritten file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import RELEASE, to_json_values
from fsdpo_data.core.job_shard import JobShard
from fsdpo_data.core.parquet_files import count_rows
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.card import dataset_card
from fsdpo_data.dataset.manifest import (
    FileEntry,
    Manifest,
    files_digest,
    merge_plugins,
    read_manifest,
)
from fsdpo_data.dataset.run_directory import MANIFEST_FILE, QUARANTINE_FILE, lock_run_directory
from fsdpo_data.dataset.schema import SCHEMA_VERSION
from fsdpo_data.dataset.stage import (
    DatasetDraft,
    ShardedStage,
    Stage,
    copy_file,
    drop_empty_files,
    seal_dataset,
)
from fsdpo_data.dataset.validate import check_files, explain_damage


def derive_dataset(
    source: Path, out: Path, stages: Sequence[Stage], *, resume: bool = False, progress: Progress
) -> Manifest:
    """Run ``stages`` on the dataset in ``source``, seal the result in ``out``, return its manifest.

    Raises:
        InputError: if ``out`` is ``source``, or a stage cannot work on it.
        RunMismatchError: if ``out`` contains another run.
        SchemaError: if ``source`` is not a sealed dataset, or was changed after the seal.
    """
    _, config = _check_request(source, out, stages)
    with lock_run_directory(out, config, resume=resume):
        return run_stages(source, out, stages, progress)


def _check_request(
    source: Path, out: Path, stages: Sequence[Stage]
) -> tuple[Manifest, dict[str, Any]]:
    """Check the arguments; return the parent's manifest and the config of the run."""
    if out.resolve() == source.resolve():
        raise InputError(
            "this is the dataset that the command reads, and datasets are never changed. Choose a "
            "new directory.",
            field="out",
            value=out,
        )
    parent = read_manifest(source)
    if not (out / MANIFEST_FILE).exists():
        check_files(source, parent.files)
        with explain_damage(source):
            stages[0].check(source, parent)
    return parent, {"parent": parent.digest, "stages": stage_options(stages)}


def derive_shard(
    source: Path,
    out: Path,
    stage: ShardedStage,
    shard: JobShard,
    *,
    resume: bool = False,
    progress: Progress,
) -> None:
    """Do one job's part of :func:`derive_dataset` in a separate directory, without a seal.

    Raises:
        InputError: if ``out`` is ``source``, or the stage cannot work on it.
        RunMismatchError: if ``out`` contains another run or another shard.
        SchemaError: if ``source`` is not a sealed dataset, or was changed after the seal.
    """
    parent, config = _check_request(source, out, [stage])
    shard_config = {**config, "shard": str(shard)}
    with lock_run_directory(out, shard_config, resume=resume), explain_damage(source):
        stage.run_shard(DatasetDraft(source, out, parent, progress), shard)


def stage_options(stages: Sequence[Stage]) -> dict[str, Any]:
    """Return the options of ``stages`` as JSON values, by name."""
    return to_json_values({stage.name: stage.options() for stage in stages})


def run_stages(source: Path, out: Path, stages: Sequence[Stage], progress: Progress) -> Manifest:
    """Run ``stages`` and seal the result, in a directory that the caller has locked.

    Args:
        source: Directory of the parent dataset.
        out: Directory of the new dataset.
        stages: The stages, in order.
        progress: Progress bar.
    """
    is_sealed = (out / MANIFEST_FILE).exists()
    if not is_sealed or _has_failures_to_retry(read_manifest(out), stages):
        parent = read_manifest(source)
        draft = DatasetDraft(source, out, parent.model_copy(deep=True), progress)
        with explain_damage(source):
            for stage in stages:
                draft.manifest.add_result(stage.run(draft))
        draft.manifest.schema_version = SCHEMA_VERSION
        draft.manifest.made_by = RELEASE
        _seal_draft(draft, parent)
    return read_manifest(out)


def _has_failures_to_retry(manifest: Manifest, stages: Sequence[Stage]) -> bool:
    """Return whether a resumed run of ``stages`` tries failed items of a sealed dataset again."""
    failed = manifest.failed
    return any(stage.name in failed and stage.failure_policy.retries for stage in stages)


def _seal_draft(draft: DatasetDraft, parent: Manifest) -> None:
    """Copy the files that no stage has written, complete the manifest and seal the dataset."""
    root = draft.root
    entries = []
    for path, text_sha256 in draft.files.items():
        if not (root / path).exists():
            copy_file(draft.parent_root / path, root / path)
        rows = count_rows(root / path)
        entries.append(FileEntry.from_file(root, path, rows, text_sha256))
    if (draft.parent_root / QUARANTINE_FILE).exists():
        copy_file(draft.parent_root / QUARANTINE_FILE, root / QUARANTINE_FILE)
    entries = drop_empty_files(root, entries)
    manifest = draft.manifest
    manifest.digest = files_digest(entries)
    manifest.parent = parent.digest
    manifest.files = entries
    manifest.plugins = merge_plugins(parent.plugins)
    draft.progress.phase("validate", 1)
    seal_dataset(root, manifest, dataset_card)
    draft.progress.advance(1)
