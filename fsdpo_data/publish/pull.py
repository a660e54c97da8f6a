"""Pull a dataset from the Hub; it gets its final name only after all checks."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fsdpo_data.core.errors import FsdpoError, InputError, SchemaError, UnavailableError
from fsdpo_data.core.files import store_errors
from fsdpo_data.core.lazy import hf, hf_errors
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.manifest import FileEntry, Manifest, read_manifest
from fsdpo_data.dataset.run_directory import MANIFEST_FILE
from fsdpo_data.dataset.validate import check_files, validate
from fsdpo_data.hub.client import HubRepo, hub_errors, resolve_commit, to_fsdpo_error


def pull_dataset(repo_name: str, out: Path, *, progress: Progress) -> Manifest:
    """Download ``org/name[@revision]`` to ``out``, validate it and return its manifest.

    The files of an interrupted pull stay next to ``out``, and the next pull uses them. A damaged
    file is downloaded again. After any other failure, no file stays.

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
    with _removal_after(InputError, SchemaError, folder=partial):
        manifest = _download_manifest(repo, commit, partial)
        if out.exists():
            if not (out / MANIFEST_FILE).is_file() or read_manifest(out) != manifest:
                raise InputError(f"{out} is not the dataset {repo_name}. Choose a new `out`.")
            shutil.rmtree(partial)
            return validate(out)
    with _removal_after(SchemaError, folder=partial):
        progress.phase("download", len(manifest.files))
        for entry in manifest.files:
            _download_data_file(repo, entry, commit, partial)
            progress.advance(1)
        _download_file(repo, "README.md", commit, partial)
        progress.phase("validate", 1)
        with store_errors(out):
            _remove_other_files(partial, manifest)
        validate(partial)
    with store_errors(out):
        partial.rename(out)
    progress.advance(1)
    return manifest


@contextmanager
def _removal_after(*errors: type[FsdpoError], folder: Path) -> Iterator[None]:
    """Remove a folder after errors that make its dataset useless for a later pull."""
    try:
        yield
    except errors:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _remove_other_files(folder: Path, manifest: Manifest) -> None:
    """Remove the download state, and the files of other versions of the dataset."""
    shutil.rmtree(folder / ".cache")  # of huggingface_hub
    paths = {MANIFEST_FILE, "README.md", *(entry.path for entry in manifest.files)}
    for file in folder.rglob("*"):
        if file.is_file() and file.relative_to(folder).as_posix() not in paths:
            file.unlink()


def _download_manifest(repo: HubRepo, commit: str, folder: Path) -> Manifest:
    """Download the manifest to ``folder`` and read it; a damaged one is downloaded again."""
    try:
        _download_file(repo, MANIFEST_FILE, commit, folder)
        try:
            return read_manifest(folder)
        except SchemaError:
            _download_file(repo, MANIFEST_FILE, commit, folder, again=True)
            return read_manifest(folder)
    except hf_errors.RemoteEntryNotFoundError:
        raise InputError(
            f"{repo} has no {MANIFEST_FILE}, so fsdpo did not make it. Build from it "
            f"with `problems={repo.name}`, or load it with `datasets`."
        ) from None


def _download_data_file(repo: HubRepo, entry: FileEntry, commit: str, folder: Path) -> None:
    """Download a data file to ``folder`` and check its digest; a damaged one is downloaded again.

    Raises:
        SchemaError: if the file differs from the manifest both times.
    """
    _download_file(repo, entry.path, commit, folder)
    try:
        check_files(folder, [entry])
    except SchemaError:
        _download_file(repo, entry.path, commit, folder, again=True)
        try:
            check_files(folder, [entry])
        except SchemaError:
            raise SchemaError(
                f"{entry.path} of {repo} at {commit} is not the file that the manifest lists: it "
                "was changed on the Hub. Pull another revision, or push the dataset again."
            ) from None


def _download_file(
    repo: HubRepo, path: str, commit: str, folder: Path, *, again: bool = False
) -> None:
    """Download one file of a dataset repository to ``folder``.

    Args:
        repo: The repository.
        path: Path of the file in the repository.
        commit: The commit.
        folder: Folder of the dataset.
        again: Whether to delete the file first, because it is damaged.
    """
    with hub_errors(repo):
        try:
            if again:
                (folder / path).unlink(missing_ok=True)
            hf.hf_hub_download(
                repo.name,
                path,
                repo_type="dataset",
                revision=commit,
                local_dir=folder,
                force_download=again,
            )
        except OSError as error:
            if error.errno is None:  # errors of the HTTP library, which are OSErrors too
                if to_fsdpo_error(error, repo) or isinstance(error, hf_errors.HfHubHTTPError):
                    raise
                raise UnavailableError(
                    f"the download of {path} from {repo} is damaged: its size differs from the "
                    "size that the Hub states. Pull again."
                ) from error
            with store_errors(folder):  # a full or read-only disk becomes a StoreError
                raise
