"""A sealed dataset from a sealed dataset: stages rewrite some files, the others are copied.

A sealed dataset is never changed. Whatever is learnt about it later (grades, rollouts, rewards,
pairs) goes into a new directory, whose manifest names the digest of its parent. A stage that is
stopped goes on, by ``resume``, with the first file that is not written yet.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import open_atomic, store_errors, write_atomic
from fsdpo_data.core.identity import digest, to_json_values
from fsdpo_data.core.job_shard import UNSHARDED, JobShard
from fsdpo_data.core.lazy import pa, pq
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.card import dataset_card
from fsdpo_data.dataset.manifest import Manifest, files_digest, read_manifest
from fsdpo_data.dataset.manifest_sections import FileEntry, PairStats, SpecSection
from fsdpo_data.dataset.run import MANIFEST_FILE, QUARANTINE_FILE, lock_run_directory
from fsdpo_data.dataset.schema import write_parquet
from fsdpo_data.dataset.validate import check_files, check_invariants
from fsdpo_data.engines.options import Resume


@dataclass
class DatasetDraft:
    """A dataset on its way from its parent to its seal."""

    parent_root: Path  #: The parent's directory.
    root: Path  #: Where the new dataset is written.
    #: The parent's manifest to begin with; stages change what they make untrue. Files, digests and
    #: parent are filled in at the end.
    manifest: Manifest
    progress: Progress
    paths: list[str] = field(init=False)  #: Its files, within either directory.

    def __post_init__(self) -> None:
        self.paths = [entry.path for entry in self.manifest.files]

    def current_files(self, config: str) -> list[Path]:
        """Return the files of a config as they stand: rewritten where that is done."""
        paths = [path for path in self.paths if path.startswith(f"{config}/")]
        return [self._rewritten(path) or self.parent_root / path for path in paths]

    def rewrite_config(
        self,
        config: str,
        phase: str,
        transform: Callable[[pa.Table], pa.Table],
        *,
        advance: bool = True,
        shard: JobShard = UNSHARDED,
    ) -> None:
        """Rewrite every file of a config; those written before an interruption are kept.

        No two stages of one draft may rewrite the same config.

        ``change`` makes of each file's table one of as many rows, in their order; unless it does so
        itself (``advance``), the rows of finished files are told to ``progress``, as ``phase``.
        """
        files = shard.select(self.current_files(config))
        rows = {file: pq.read_metadata(file).num_rows for file in files}
        owed = [file for file in files if file.is_relative_to(self.parent_root)]
        total = sum(rows.values())
        self.progress.phase(phase, total, done=total - sum(rows[file] for file in owed))
        for file in owed:
            table = transform(pq.read_table(file))
            write_parquet(table, self.root / file.relative_to(self.parent_root))
            if advance:
                self.progress.advance(rows[file])

    def drop_pairs(self) -> None:
        """Leave the parent's pairs out: what they were made of has changed."""
        self.paths = [path for path in self.paths if not path.startswith("pairs/")]
        self.manifest.rows.pairs = 0
        self.manifest.pairs = self.manifest.spec.pair = None

    def add_pairs(self, make_pairs: Callable[[Path], pa.Table]) -> None:
        """Write in place of the parent's pairs those that ``make`` finds in each file."""
        files = self.current_files("solutions")
        self.drop_pairs()
        self.progress.phase("pair", len(files))
        for i, file in enumerate(files):
            path = f"pairs/train-{i:05d}-of-{len(files):05d}.parquet"
            self.paths.append(path)
            if self._rewritten(path) is None:
                write_parquet(make_pairs(file), self.root / path)
            self.progress.advance(1)

    def set_pair_stats(self, counts: PairStats) -> None:
        """Say in the manifest what the added pairs are like."""
        self.manifest.pairs, self.manifest.rows.pairs = counts, counts.pairs

    def _rewritten(self, path: str) -> Path | None:
        return self.root / path if (self.root / path).exists() else None


class Stage(Protocol):
    """One step from dataset to dataset."""

    #: The part of the manifest's spec that it decides. Stages that take each other's place, such as
    #: those that write pairs, decide the same.
    spec_key: str

    def spec(self) -> Mapping[str, Any]:
        """Return everything that decides what the stage writes, as plain values."""
        ...

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse a parent that the stage cannot work on, before anything is written.

        Asked of the first stage only: those after it work on what it makes.
        """
        return None

    def run(self, draft: DatasetDraft) -> None:
        """Write the stage's files, and say in ``draft.manifest`` what has changed."""
        ...


class ShardedStage(Stage, Protocol):
    """A stage whose dear part several jobs can share."""

    def run_shard(self, draft: DatasetDraft, shard: JobShard) -> None:
        """Do one job's part, so that :meth:`run` finds it done."""
        ...


@dataclass(frozen=True, kw_only=True)
class StageOptions(Options, ABC):
    """From a sealed dataset to a new one.

    Attributes:
        data: A sealed dataset; it is left as it is.
        out: Directory of the new dataset.
        resume: Go on with the run in `out`.
    """

    data: Annotated[str | Path, Option(positional=True)] = field(kw_only=False)
    out: str | Path
    resume: Resume = False

    @abstractmethod
    def stage(self) -> Stage:
        """Check what was asked for, and return what does it; models load when they are needed."""


def derive_dataset(
    source: Path, out: Path, stages: Sequence[Stage], *, resume: bool = False, progress: Progress
) -> Manifest:
    """Run ``stages`` on the dataset in ``source``, seal the result in ``out``, return its manifest.

    Raises:
        InputError: if ``out`` is ``source``, or a stage cannot work on it.
        RunMismatchError: if ``out`` holds another run.
        SchemaError: if ``source`` is not a sealed dataset, or was changed since.
    """
    _, config = _check_request(source, out, stages)
    with lock_run_directory(out, config, resume=resume):
        return run_stages(source, out, stages, progress)


def _check_request(
    source: Path, out: Path, stages: Sequence[Stage]
) -> tuple[Manifest, dict[str, Any]]:
    """Check what is asked for; return the manifest of the parent and the config of the run."""
    if out.resolve() == source.resolve():
        raise InputError(
            "a sealed dataset is never changed. Choose a new directory.", field="out", value=out
        )
    parent = read_manifest(source)
    if not (out / MANIFEST_FILE).exists():
        check_files(source, parent.files)
        stages[0].check(source, parent)
    return parent, {"parent": parent.digest, "stages": stage_specs(stages)}


def derive_shard(
    source: Path,
    out: Path,
    stage: ShardedStage,
    shard: JobShard,
    *,
    resume: bool = False,
    progress: Progress,
) -> None:
    """Do one job's part of :func:`derive_dataset` in a directory of its own; nothing is sealed.

    Raises:
        InputError: if ``out`` is ``source``, or the stage cannot work on it.
        RunMismatchError: if ``out`` holds another run or another shard.
        SchemaError: if ``source`` is not a sealed dataset, or was changed since.
    """
    parent, config = _check_request(source, out, [stage])
    with lock_run_directory(out, {**config, "shard": str(shard)}, resume=resume):
        stage.run_shard(DatasetDraft(source, out, parent, progress), shard)


def stage_specs(stages: Sequence[Stage]) -> dict[str, Any]:
    """Return the specs of ``stages`` as plain JSON, by the part that each decides."""
    return to_json_values({stage.spec_key: stage.spec() for stage in stages})


def run_stages(source: Path, out: Path, stages: Sequence[Stage], progress: Progress) -> Manifest:
    """Do what :func:`derive_dataset` does, in a directory that the caller has claimed."""
    if not (out / MANIFEST_FILE).exists():
        parent = read_manifest(source)
        draft = DatasetDraft(source, out, parent.model_copy(deep=True), progress)
        for stage in stages:
            stage.run(draft)
        _seal_draft(draft, parent, stage_specs(stages))
    return read_manifest(out)


def _seal_draft(draft: DatasetDraft, parent: Manifest, specs: Mapping[str, Any]) -> None:
    """Copy what no stage has written, complete the manifest, seal."""
    manifest, root = draft.manifest, draft.root
    texts = {entry.path: entry.text_sha256 for entry in parent.files}
    files = []
    for path in draft.paths:
        if not (root / path).exists():
            copy_file(draft.parent_root / path, root / path)
        rows = pq.read_metadata(root / path).num_rows
        files.append(FileEntry.from_file(root, path, rows, texts.get(path)))
    if (draft.parent_root / QUARANTINE_FILE).exists():
        copy_file(draft.parent_root / QUARANTINE_FILE, root / QUARANTINE_FILE)
    spec = manifest.spec.without_digest() | dict(specs)
    manifest.spec = SpecSection.model_validate({"digest": digest(spec), **spec})
    manifest.digest, manifest.parent, manifest.files = files_digest(files), parent.digest, files
    draft.progress.phase("validate", 1)
    seal_dataset(root, manifest)
    draft.progress.advance(1)


def seal_dataset(root: Path, manifest: Manifest, *, saved: int = 0) -> None:
    """Check the finished files in ``root``, write the card, and the manifest last of all.

    Of ``saved`` problems the samples are safe there whatever happens, which errors say.

    Raises:
        SchemaError: if the files break an invariant.
        StoreError: if the disk fails.
    """
    check_invariants(root, manifest)
    with store_errors(root, saved_problems=saved):
        write_atomic(root / "README.md", dataset_card(root, manifest).encode())
        write_atomic(root / MANIFEST_FILE, manifest.to_json().encode())


def copy_file(file: Path, target: Path) -> None:
    """Copy a file, whole or not at all; the folder is made if it is missing.

    Raises:
        StoreError: if the disk fails.
    """
    with store_errors(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as source, open_atomic(target) as copy:
            shutil.copyfileobj(source, copy)
