"""Pull a dataset from the Hub: whole, checked, and under its final name only then."""

import shutil
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import store_errors
from fsdpo_data.core.lazy import hf, hf_errors
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.run import MANIFEST_FILE
from fsdpo_data.dataset.validate import validate
from fsdpo_data.hub.client import HubRepo, hub_errors, resolve_commit


def pull_dataset(repo_name: str, out: Path, *, progress: Progress) -> Manifest:
    """Fetch ``org/name[@revision]`` into ``out`` and validate it; return its manifest.

    What has arrived of an interrupted pull is kept beside ``out`` and not fetched again.

    Raises:
        InputError: if there is no such dataset or revision, it is not one of ours, or ``out``
            holds something else.
        SchemaError: if what arrives is not what its manifest says.
        Unavailable: if the Hub cannot be reached, or refuses.
    """
    repo = HubRepo.parse(repo_name, "dataset")
    if repo is None:
        raise InputError(
            f"{repo_name!r} is no dataset on the Hub: expected org/name or org/name@tag."
        )
    commit = resolve_commit(repo)
    partial = out.parent / f".{out.name}.partial"  # `.` has no name to replace
    with store_errors(out):
        partial.mkdir(parents=True, exist_ok=True)
    try:
        _fetch(repo, MANIFEST_FILE, commit, partial)
    except hf_errors.RemoteEntryNotFoundError:
        raise InputError(
            f"{repo} has no {MANIFEST_FILE}, so fsdpo did not make it. Build from it "
            f"with `problems={repo.name}`, or load it with `datasets`."
        ) from None
    manifest = read_manifest(partial)
    if out.exists():
        if not (out / MANIFEST_FILE).is_file() or read_manifest(out) != manifest:
            raise InputError(f"{out} holds something else than {repo_name}. Choose a new `out`.")
        shutil.rmtree(partial)
        return validate(out)
    progress.phase("download", len(manifest.files))
    for entry in manifest.files:
        _fetch(repo, entry.path, commit, partial)
        progress.advance(1)
    _fetch(repo, "README.md", commit, partial)
    progress.phase("validate", 1)
    validate(partial)
    with store_errors(out):
        shutil.rmtree(partial / ".cache")
        partial.rename(out)
    progress.advance(1)
    return manifest


def _fetch(repo: HubRepo, path: str, commit: str, folder: Path) -> None:
    arguments: dict[str, Any] = {"repo_type": "dataset", "revision": commit, "local_dir": folder}
    with hub_errors(repo):
        try:
            hf.hf_hub_download(repo.name, path, **arguments)
        except OSError as error:
            if error.errno is None:  # those of the HTTP library are of this kind too
                raise
            with store_errors(folder):
                raise
