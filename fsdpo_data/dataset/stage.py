"""The stages that derive a sealed dataset from a sealed dataset, and the seal.

A sealed dataset never changes. Later results (grades, rollouts, rewards, pairs) go into a new
directory, whose manifest contains the digest of its parent. Stages rewrite some files, and others
are copied.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeAlias

from fsdpo_data.core.cost import NO_COST, Cost
from fsdpo_data.core.failures import STOP_AT_FIRST, FailurePolicy
from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.files import open_atomic, store_errors, write_atomic
from fsdpo_data.core.input_files import check_regular_file
from fsdpo_data.core.job_shard import UNSHARDED, JobShard
from fsdpo_data.core.lazy import pa
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.parquet_files import count_rows
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.manifest import AnyRecord, FileEntry, Manifest, StageCounts, StageRecord
from fsdpo_data.dataset.pair_rows import count_broken_pairs, pairs_within
from fsdpo_data.dataset.run_directory import MANIFEST_FILE
from fsdpo_data.dataset.schema import read_table, write_parquet
from fsdpo_data.dataset.stage_records import has_imported_pairs
from fsdpo_data.dataset.validate import check_invariants
from fsdpo_data.engines.options import Resume

log = logging.getLogger(__name__)

#: Returns the text of the card of a dataset, from its directory and its manifest.
CardRenderer: TypeAlias = Callable[[Path, Manifest], str]


@dataclass
class DatasetDraft:
    """A derived dataset that is not sealed yet."""

    parent_root: Path  #: Directory of the parent dataset.
    root: Path  #: Directory of the new dataset.
    #: A copy of the parent's manifest, which stages update. The seal sets files and digests.
    manifest: Manifest
    progress: Progress  #: Receives the progress of the stages.
    #: The files, by path relative to either directory: the digest of the texts before segmentation
    #: for files of solutions, None for others.
    files: dict[str, str | None] = field(init=False)

    def __post_init__(self) -> None:
        self.files = {entry.path: entry.text_sha256 for entry in self.manifest.files}

    def current_files(self, config: str) -> list[Path]:
        """Return the files of a config (problems, solutions or pairs).

        A file that a stage has rewritten replaces the file of the parent.
        """
        return [self._current_file(path) for path in self._config_paths(config)]

    def parent_files(self, config: str) -> list[Path]:
        """Return the files of a config in the parent dataset, as no stage has rewritten them."""
        return self.manifest.config_paths(self.parent_root, config)

    def rewrite_config(
        self,
        config: str,
        phase: str,
        transform: Callable[[pa.Table], pa.Table],
        *,
        advance: bool = True,
        shard: JobShard = UNSHARDED,
    ) -> None:
        """Rewrite every file of a config, except files that an interrupted run has rewritten.

        Two stages of one draft must not rewrite the same config. A stage changes columns, and
        cannot add or remove rows: the samples on disk belong to the rows.

        Args:
            config: Name of the config.
            phase: Name of this work for ``progress``.
            transform: Returns a table with the same number of rows in the same order.
            advance: Report the rows of each finished file; off if ``transform`` reports them.
            shard: The part of the files to rewrite.
        """
        paths = shard.select(self._config_paths(config))
        rows = {path: count_rows(self._current_file(path)) for path in paths}
        missing_paths = [path for path in paths if self._rewritten_file(path) is None]
        total_rows = sum(rows.values())
        missing_rows = sum(rows[path] for path in missing_paths)
        self.progress.phase(phase, total_rows, done=total_rows - missing_rows)
        for path in missing_paths:
            table = transform(read_table(config, self.parent_root / path))
            if table.num_rows != rows[path]:
                raise ValueError(
                    f"{phase}: expected {rows[path]} rows of {config}, got {table.num_rows}. A "
                    "stage changes columns, and cannot add or remove rows."
                )
            write_parquet(table, self.root / path)
            if advance:
                self.progress.advance(rows[path])

    def discard_solutions(self) -> None:
        """Remove the rewritten solutions and pairs, before the stage writes others.

        A resumed run has them if items that failed in an earlier session now succeed.
        """
        discard_dataset(self.root, ("solutions", "pairs"))

    def discard_seal(self) -> None:
        """Remove the manifest and the pairs, before the stage writes some solutions again."""
        discard_dataset(self.root, ("pairs",))

    def written_files(self, config: str) -> list[Path]:
        """Return the files of a config that a stage has rewritten in an earlier session."""
        files = map(self._rewritten_file, self._config_paths(config))
        return [file for file in files if file is not None]

    def update_pairs(self) -> None:
        """Keep imported pairs, and leave out other pairs, after the solutions have changed.

        Other pairs were chosen by outcomes and rewards that no longer hold; the stage ``pair``
        chooses new ones. Imported pairs cannot be chosen again. They get the new step rewards of
        their solutions. A pair without one of its solutions is left out. A warning counts the pairs
        that are left out, unless complete pairs are left and all others lost both solutions.
        """
        if not has_imported_pairs(self.manifest):
            self._drop_pairs()
            return
        n_imported = self.manifest.rows.pairs
        self._write_pairs(partial(pairs_within, pair_files=self.parent_files("pairs")))
        n_pairs = sum(map(count_rows, self.current_files("pairs")))
        n_broken = count_broken_pairs(self.current_files("solutions"), self.parent_files("pairs"))
        if n_broken or not n_pairs:
            log.warning(
                f"{self.root}: {n_imported - n_pairs:,} of {n_imported:,} imported pairs are "
                f"left out, and {n_broken:,} of them lost only one of their two solutions. The "
                "command `pair` cannot choose them again."
            )
        if not n_pairs:
            discard_dataset(self.root, ("pairs",))
            self._drop_pairs()

    def add_pairs(self, make_pairs: Callable[[Path], pa.Table]) -> None:
        """Replace the parent's pairs by the pairs that ``make_pairs`` selects from each file."""
        if has_imported_pairs(self.manifest):
            log.warning(
                "the new pairs replace the imported pairs. Train on the dataset "
                f"{self.parent_root} for the imported ones."
            )
        self._drop_pairs()
        self._write_pairs(make_pairs)

    def _drop_pairs(self) -> None:
        """Leave out the parent's pairs."""
        self._remove_pair_files()
        self.manifest.remove_writers({"pairs"})

    def _remove_pair_files(self) -> None:
        for path in self._config_paths("pairs"):
            del self.files[path]

    def _write_pairs(self, make_pairs: Callable[[Path], pa.Table]) -> None:
        """Write the pairs that ``make_pairs`` returns for each file of solutions."""
        self._remove_pair_files()
        solution_files = self.current_files("solutions")
        self.progress.phase("pair", len(solution_files))
        for i, file in enumerate(solution_files):
            path = f"pairs/train-{i:05d}-of-{len(solution_files):05d}.parquet"
            self.files[path] = None
            if self._rewritten_file(path) is None:
                write_parquet(make_pairs(file), self.root / path)
            self.progress.advance(1)

    def _config_paths(self, config: str) -> list[str]:
        return [path for path in self.files if path.startswith(f"{config}/")]

    def _current_file(self, path: str) -> Path:
        return self._rewritten_file(path) or self.parent_root / path

    def _rewritten_file(self, path: str) -> Path | None:
        file = self.root / path
        return file if file.exists() else None


class Stage(Protocol):
    """An operation that derives a dataset from a dataset."""

    #: Name of the stage's entry in the manifest. Stages with the same name replace each other, such
    #: as the stages that write pairs.
    name: str
    #: Columns and configs with the result of the stage, such as ``step_rewards`` or ``pairs``. The
    #: entry of another stage that wrote one of them is removed.
    writes: Sequence[str] = ()

    @property
    def failure_policy(self) -> FailurePolicy:
        """When the stage stops because of items that its engine refuses."""
        return STOP_AT_FIRST

    def options(self) -> FileModel | Options | Mapping[str, Any]:
        """Return everything that determines the output of the stage."""
        ...

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse a parent that the stage cannot work on, before anything is written.

        Only the first stage of a pipeline is checked, because later stages work on its output.
        """
        return None

    def run(self, draft: DatasetDraft) -> AnyRecord:
        """Write the stage's files, and return the entry of the stage in the manifest."""
        ...

    def make_record(self, counts: FileModel | None = None, cost: Cost = NO_COST) -> AnyRecord:
        """Return the entry of the stage, with its counts and its cost."""
        return StageRecord(
            name=self.name,
            options=self.options(),
            writes=list(self.writes),
            counts=counts or StageCounts(),
            cost=cost,
        )


class ShardedStage(Stage, Protocol):
    """A stage whose expensive part several jobs can share."""

    def run_shard(self, draft: DatasetDraft, shard: JobShard) -> None:
        """Do the part of one job, whose files ``merge`` copies to where :meth:`run` finds them."""
        ...


class StageOptions(Options):
    """Derive a new dataset from a sealed dataset."""

    data: Annotated[str | Path, Option(positional=True, dataset="input")]
    """A dataset, as a directory or a URL. It does not change."""
    out: Annotated[str | Path, Option(in_digest=False, dataset="output")]
    """Directory or URL of the new dataset."""
    resume: Resume = False
    """Continue the run in `out`."""


def seal_dataset(
    root: Path, manifest: Manifest, render_card: CardRenderer, *, saved_problems: int = 0
) -> None:
    """Check the finished files in ``root``, then write the card and, last, the manifest.

    Args:
        root: Directory of the dataset.
        manifest: The manifest to write.
        render_card: Returns the card of the dataset.
        saved_problems: Problems whose samples are on disk; an error states that they are safe.

    Raises:
        SchemaError: if the files break an invariant.
        StoreError: if the directory cannot be written.
    """
    check_invariants(root, manifest)
    with store_errors(root, saved_problems=saved_problems):
        write_atomic(root / "README.md", render_card(root, manifest).encode())
        write_atomic(root / MANIFEST_FILE, manifest.to_json().encode())


def drop_empty_files(root: Path, entries: Sequence[FileEntry]) -> list[FileEntry]:
    """Remove the files without rows from ``root``, and return the entries of the other files.

    ``datasets`` cannot read a config in which a file has no rows. If no file of a config has rows,
    they all stay.
    """
    configs_with_rows = {entry.path.partition("/")[0] for entry in entries if entry.rows}
    kept_entries = []
    for entry in entries:
        if entry.rows or entry.path.partition("/")[0] not in configs_with_rows:
            kept_entries.append(entry)
        else:
            with store_errors(root):
                (root / entry.path).unlink()
    return kept_entries


def discard_dataset(root: Path, configs: Sequence[str] = ("solutions", "pairs")) -> None:
    """Remove the manifest and some configs of a dataset that is written again.

    The manifest goes first, so a process that stops here leaves an unfinished run.

    Raises:
        StoreError: if the files cannot be removed.
    """
    with store_errors(root):
        (root / MANIFEST_FILE).unlink(missing_ok=True)
        for config in configs:
            if (root / config).is_dir():
                shutil.rmtree(root / config)


def copy_file(file: Path, target: Path) -> None:
    """Copy a file atomically, and create the target's folder if it is missing.

    Raises:
        StoreError: if the target cannot be written.
    """
    with store_errors(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        check_regular_file(file)
        with file.open("rb") as source, open_atomic(target) as target_file:
            shutil.copyfileobj(source, target_file)
