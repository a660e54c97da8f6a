"""Pull a dataset from the Hub; it gets its final name only after all checks."""

import shutil
from pathlib import Path

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import store_errors
from fsdpo_data.core.lazy import hf, hf_errors
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.run import MANIFEST_FILE
from fsdpo_data.dataset.validate import validate
from fsdpo_data.hub.client import HubRepo, hub_errors, resolve_commit


def pull_dataset(repo_name: str, out: Path, *, progress: Progress) -> Manifest:
    """Download ``org/name[@revision]`` to ``out``, validate it and return its manifest.

    The files of an interrupted pull stay next to ``out``, and the next pull uses them.

    Raises:
        InputError: if the dataset or revision does not exist, if fsdpo did not write it, or if
            ``out`` exists with other content.
        SchemaError: if the downloaded files do not match the manifest.
        StoreError: if ``out`` cannot be written.
        UnavailableError: if the Hub cannot be reached, or refuses.
    """
    repo = HubRepo.parse(repo_name, "dataset")
    if repo is None:
        raise InputError(
            f"{repo_name!r} is not a dataset on the Hub: expected org/name or org/name@tag."
        )
    commit = resolve_commit(repo)
    partial = out.parent / f".{out.name}.partial"  # with_name fails for `.`, which has no name
    with store_errors(out):
        partial.mkdir(parents=True, exist_ok=True)
    manifest = _download_manifest(repo, commit, partial)
    if out.exists():
        if not (out / MANIFEST_FILE).is_file() or read_manifest(out) != manifest:
            raise InputError(f"{out} is not the dataset {repo_name}. Choose a new `out`.")
        shutil.rmtree(partial)
        return validate(out)
    progress.phase("download", len(manifest.files))
    for entry in manifest.files:
        _download_file(repo, entry.path, commit, partial)
        progress.advance(1)
    _download_file(repo, "README.md", commit, partial)
    progress.phase("validate", 1)
    validate(partial)
    with store_errors(out):
        shutil.rmtree(partial / ".cache")  # the download state of huggingface_hub
        partial.rename(out)
    progress.advance(1)
    return manifest


def _download_manifest(repo: HubRepo, commit: str, folder: Path) -> Manifest:
    """Download the manifest to ``folder`` and read it."""
    try:
        _download_file(repo, MANIFEST_FILE, commit, folder)
    except hf_errors.RemoteEntryNotFoundError:
        raise InputError(
            f"{repo} has no {MANIFEST_FILE}, so fsdpo did not make it. Build from it "
            f"with `problems={repo.name}`, or load it with `datasets`."
        ) from None
    return read_manifest(folder)


def _download_file(repo: HubRepo, path: str, commit: str, folder: Path) -> None:
    """Download one file of a dataset repository to ``folder``."""
    with hub_errors(repo):
        try:
            hf.hf_hub_download(
                repo.name, path, repo_type="dataset", revision=commit, local_dir=folder
            )
        except OSError as error:
            if error.errno is None:  # errors of the HTTP library, which are OSErrors too
                raise
            with store_errors(folder):  # a full or read-only disk becomes a StoreError
                raise
