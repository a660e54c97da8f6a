"""Datasets with benchmark problems, which training and publishing refuse."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import hf, pl
from fsdpo_data.core.options import Option
from fsdpo_data.core.parquet_files import collect_rows, open_parquet
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.run_directory import MANIFEST_FILE
from fsdpo_data.dataset.schema import column_problems, scan_rows
from fsdpo_data.hub.client import HubRepo, call_hub, hub_errors
from fsdpo_data.problems.benchmark_rows import BENCHMARKS_KEY, benchmark_rows

#: The option of a command that otherwise refuses benchmark problems.
AllowBenchmark = Annotated[bool, Option(in_digest=False)]

_HUB_PROBLEM_FILES = "problems/*.parquet"  #: The files of problems in a repository.


def check_no_benchmark_problems(root: Path, manifest: Manifest) -> None:
    """Check that no problem of a dataset comes from a benchmark.

    Raises:
        InputError: if a problem does.
    """
    # A copy for a training may lack the problems.
    files = [file for file in manifest.config_paths(root, "problems") if file.exists()]
    _check_files(files, str(root))


@dataclass(frozen=True)
class HubContent:
    """The manifest and the problems of a dataset on the Hub, without its other rows."""

    manifest: Manifest | None = None  #: The manifest; None for a dataset of another program.
    problem_files: Sequence[Path] = ()  #: The files of problems with our columns.

    def check_no_benchmark_problems(self, location: str) -> None:
        """Check that no problem comes from a benchmark.

        A repository without problems in our columns states nothing about benchmarks, so it passes.

        Raises:
            InputError: if a problem does.
        """
        _check_files(self.problem_files, location)


def download_content(repo: HubRepo, commit: str) -> HubContent:
    """Download the manifest and the problems of a dataset on the Hub.

    Args:
        repo: The repository.
        commit: The commit.

    Raises:
        SchemaError: if the manifest was changed, or is of another release.
        UnavailableError: if the Hub cannot be reached, or refuses access.
    """
    # The Hub's client warns if no file matches, and nearly every repository has a README.
    folder = _download_files(repo, commit, [_HUB_PROBLEM_FILES, MANIFEST_FILE, "README.md"])
    files = [file for file in sorted(folder.glob(_HUB_PROBLEM_FILES)) if _has_problems(file)]
    # Another program may have written a file of this name, but no problems in our columns.
    has_manifest = (folder / MANIFEST_FILE).is_file() and bool(files)
    return HubContent(read_manifest(folder) if has_manifest else None, files)


def download_solutions(repo: HubRepo, commit: str, manifest: Manifest) -> Path:
    """Download the solutions of a dataset on the Hub; return the folder of the dataset.

    Raises:
        UnavailableError: if the Hub cannot be reached, or refuses access.
    """
    return _download_files(repo, commit, [file.path for file in manifest.config_files("solutions")])


def _download_files(repo: HubRepo, commit: str, patterns: Sequence[str]) -> Path:
    """Download the files of a commit whose paths match a pattern; return their folder."""
    with hub_errors(repo):
        return Path(
            call_hub(
                hf.snapshot_download,
                repo.name,
                repo_type=repo.kind,
                revision=commit,
                allow_patterns=list(patterns),
            )
        )


def _has_problems(file: Path) -> bool:
    """Whether a file has the columns of our problems."""
    return not column_problems("problems", open_parquet(file).schema_arrow)


def _check_files(files: Sequence[Path], location: str) -> None:
    """Raise an InputError if files of problems have a problem of a benchmark."""
    if not files:
        return
    metadata = scan_rows("problems", files).select("metadata")
    has_key = pl.col("metadata").str.contains(f'"{BENCHMARKS_KEY}"', literal=True)
    count = 0
    names: dict[str, None] = {}
    for (text,) in collect_rows(metadata.filter(has_key)).iter_rows():
        with contextlib.suppress(ValueError):  # a source may have a field of this name
            rows = benchmark_rows(json.loads(text))
            count += bool(rows)
            names |= dict.fromkeys(row.name for row in rows)
    if count:
        raise InputError(
            f"{location} has {count:,} problems of benchmarks ({', '.join(names)}). A model that "
            "was trained on them cannot be measured on them. Use other problems, or add "
            "`allow_benchmark`."
        )
