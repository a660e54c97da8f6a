"""Datasets, shards and benchmark runs behind URLs.

Commands work on local directories. An input is downloaded to the cache of the user, and compared
with the digests of its manifest. An output is written to a local directory and then uploaded. Its
last file completes the upload: ``manifest.json``, ``shard.json`` of a shard, or ``run.json`` of a
run.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fsdpo_data.core.errors import FsdpoError, InputError, RunMismatchError, SchemaError
from fsdpo_data.core.files import (
    LOCK_FILE,
    lock_directory,
    lock_file,
    store_errors,
    user_cache_folder,
)
from fsdpo_data.core.input_files import read_json
from fsdpo_data.core.options import Options, field_option
from fsdpo_data.core.progress import NO_PROGRESS, Progress
from fsdpo_data.core.remote_folder import RemoteFolder
from fsdpo_data.core.row_files import summarize_list
from fsdpo_data.core.urls import is_url
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.run_directory import (
    CONFIG_FILE,
    MANIFEST_FILE,
    QUARANTINE_FILE,
    RUN_FILE,
    SHARD_FILE,
    differing_keys,
)
from fsdpo_data.dataset.validate import check_files

#: Files that complete a dataset, a shard and a run.
LAST_FILES = (MANIFEST_FILE, SHARD_FILE, RUN_FILE)
OptionsT = TypeVar("OptionsT", bound=Options)

ALL_FOLDERS = "/*"  #: End of a URL that stands for all folders in a folder.


@contextlib.contextmanager
def local_paths(options: OptionsT, progress: Progress = NO_PROGRESS) -> Iterator[OptionsT]:
    """Yield options with local directories in place of URLs; upload the output after the block.

    The fields with ``Option.dataset`` hold datasets. If the block fails, nothing is uploaded, and
    the local files of the output stay for ``resume``.

    Raises:
        InputError: if the output is also an input.
        RunMismatchError: if the output's folder is complete, or holds other files.
        SchemaError: if an input is not a complete dataset or shard, or is damaged.
        UnavailableError: if a store cannot be reached, or refuses.
    """
    declared_roles = {
        name: field_option(info).dataset for name, info in type(options).model_fields.items()
    }
    roles = {name: role for name, role in declared_roles.items() if role}
    inputs = [name for name, role in roles.items() if role == "input"]
    outputs = [name for name, role in roles.items() if role == "output"]
    local_values: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        for name in outputs:
            url = getattr(options, name)
            if is_url(url):
                _check_not_input(name, url, [getattr(options, name) for name in inputs])
                resume = bool(getattr(options, "resume", True))
                output = _local_output(url, resume=resume, progress=progress)
                local_values[name] = stack.enter_context(output)
        copies: dict[Path, str] = {}
        for name in inputs:
            value = getattr(options, name)
            items = value if isinstance(value, tuple | list) else [value]
            if not any(map(is_url, items)):
                continue
            local_items = tuple(local_copy(item, progress) for item in items)
            local_values[name] = local_items if items is value else local_items[0]
            copies |= {
                copy: item for copy, item in zip(local_items, items, strict=True) if is_url(item)
            }
        if copies:
            stack.enter_context(errors_with_urls(copies))
        yield options.replace(**local_values) if local_values else options


def local_copy(location: str | Path, progress: Progress = NO_PROGRESS) -> Path:
    """Return the directory of a dataset, shard or run; a URL is first downloaded to the cache.

    The copy stays in the cache, where other processes may read it during a later download. Each
    use compares a dataset with its manifest, and the datasets of a run with theirs; equal ones are
    not downloaded again. The other files of a run and all files of a shard have no digests, so each
    use downloads them.

    Args:
        location: A local directory, which is returned as it is, or a URL.
        progress: Receives the progress of the download.

    Raises:
        SchemaError: if the folder holds no complete dataset, shard or run, or a file differs.
        StoreError: if the cache cannot be written.
        UnavailableError: if the store cannot be reached, or refuses.
    """
    if not is_url(location):
        return Path(location)
    folder = RemoteFolder(str(location))
    stored_files = folder.list_files()
    last_file = next((name for name in LAST_FILES if name in stored_files), None)
    if last_file is None:
        raise SchemaError(
            f"{folder.url} holds no dataset ({MANIFEST_FILE} is missing), no finished shard "
            f"({SHARD_FILE} is missing) and no finished run ({RUN_FILE} is missing). Check the "
            "URL, or finish its command with `resume=True`."
        )
    copy = _copy_folder(folder.url)
    with store_errors(copy):
        copy.mkdir(parents=True, exist_ok=True)
    lock = copy.with_name(copy.name + ".lock")
    with lock_file(lock, "downloading", wait=True):  # ranks of a training wait for the first
        if last_file == MANIFEST_FILE:
            _update_dataset(folder, stored_files, copy, progress)
        elif last_file == RUN_FILE:
            _update_run(folder, stored_files, copy, progress)
        else:
            _update_files(folder, stored_files, copy, progress)
    return copy


def _update_dataset(
    folder: RemoteFolder, stored_files: Sequence[str], copy: Path, progress: Progress
) -> None:
    """Download a dataset, unless the copy has the files of its manifest."""
    folder.download(MANIFEST_FILE, copy / MANIFEST_FILE)
    with errors_with_urls({copy: folder.url}):
        manifest = read_manifest(copy)
        paths = [entry.path for entry in manifest.files]
        if QUARANTINE_FILE in stored_files:
            paths.append(QUARANTINE_FILE)
        try:
            check_files(copy, manifest.files)
        except SchemaError:  # a new, unfinished or damaged copy
            _download(folder, paths, copy, progress)
            check_files(copy, manifest.files)
    _delete_others(copy, "*.parquet", paths)
    _delete_others(copy, QUARANTINE_FILE, stored_files)


def _update_run(
    folder: RemoteFolder, stored_files: Sequence[str], copy: Path, progress: Progress
) -> None:
    """Download the datasets of a run that the copy does not have, and the run's own files."""
    for path in stored_files:
        dataset, _, name = path.partition("/")
        if name == MANIFEST_FILE:
            prefix = f"{dataset}/"
            files = [file.removeprefix(prefix) for file in stored_files if file.startswith(prefix)]
            _update_dataset(
                RemoteFolder(f"{folder.url}/{dataset}"), files, copy / dataset, progress
            )
    _download(folder, [path for path in stored_files if "/" not in path], copy, progress)


def _update_files(
    folder: RemoteFolder, stored_files: Sequence[str], copy: Path, progress: Progress
) -> None:
    """Download all files of a folder; delete those that the folder no longer has."""
    _download(folder, stored_files, copy, progress)
    _delete_others(copy, "*", stored_files)


def _delete_others(copy: Path, pattern: str, paths: Sequence[str]) -> None:
    """Delete the files of a copy that fit a pattern and are not in ``paths``."""
    with store_errors(copy):
        for file in copy.rglob(pattern):
            if file.is_file() and file.relative_to(copy).as_posix() not in paths:
                file.unlink()


def _copy_folder(url: str) -> Path:
    """Return the folder in the cache with the copy of a URL, which keeps the name of the folder."""
    digest = hashlib.sha256(url.encode()).hexdigest()
    return user_cache_folder("copies") / digest / url.rpartition("/")[2]


def _download(folder: RemoteFolder, paths: Sequence[str], root: Path, progress: Progress) -> None:
    progress.phase("download", len(paths))
    for path in paths:
        folder.download(path, root / path)
        progress.advance(1)


@contextlib.contextmanager
def _local_output(url: str, *, resume: bool, progress: Progress) -> Iterator[Path]:
    """Yield the local directory of an output, and upload the directory after the block.

    A stage may create further datasets next to its output, which are uploaded next to the URL.
    """
    folder = RemoteFolder(url)
    name = hashlib.sha256(folder.url.encode()).hexdigest()
    working_folder = user_cache_folder("outputs") / name
    with lock_directory(working_folder, f"writing to {folder.url}"):
        out = working_folder / folder.name
        if not resume:
            _check_no_leftovers(folder, out)
        _check_target(folder, out, resume=resume, progress=progress)
        with _mismatch_with_url(folder, out):
            yield out
        parent_url = folder.url.removesuffix(f"/{folder.name}")
        directories = sorted(_folders_in(working_folder), key=lambda directory: directory == out)
        targets = [RemoteFolder(f"{parent_url}/{directory.name}") for directory in directories]
        for directory, target in zip(directories, targets, strict=True):
            _check_same_run(directory, target)
        for directory, target in zip(directories, targets, strict=True):
            upload(directory, target, progress)
            copy = _copy_folder(target.url)  # where the next command finds the dataset
            with store_errors(copy):
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(copy, ignore_errors=True)
                directory.rename(copy)


@contextlib.contextmanager
def _mismatch_with_url(folder: RemoteFolder, out: Path) -> Iterator[None]:
    """Name the URL of an output in place of its local directory, if it contains another run.

    Other errors name the local directory, which keeps the files of a command that fails.
    """
    try:
        yield
    except RunMismatchError as error:
        name = folder.url
        if not set(LAST_FILES) & set(folder.list_files()):
            name += f" (not uploaded yet, in {out})"
        raise error.with_text(str(out), name) from None


def _folders_in(folder: Path) -> list[Path]:
    """Return the folders directly in a folder."""
    return [file for file in folder.iterdir() if file.is_dir()]


def _check_no_leftovers(folder: RemoteFolder, out: Path) -> None:
    """Refuse to upload the further datasets of an earlier command that was stopped."""
    leftovers = [directory for directory in _folders_in(out.parent) if directory != out]
    if leftovers:
        names = summarize_list(sorted(directory.name for directory in leftovers))
        raise RunMismatchError(
            f"an earlier command with the output {folder.url} was stopped after it had written "
            f"{names}. Repeat its options with `resume=True`, choose another `out`, or delete "
            f"{out.parent}."
        )


def _check_same_run(directory: Path, folder: RemoteFolder) -> None:
    """Refuse a folder that holds other files, or a run that differs from a local directory."""
    stored_files = folder.list_files()
    if not stored_files:
        return
    if CONFIG_FILE not in stored_files:
        raise _other_files_error(folder, stored_files)
    with tempfile.TemporaryDirectory() as temporary:
        stored_config = Path(temporary, CONFIG_FILE)
        folder.download(CONFIG_FILE, stored_config)
        changes = differing_keys(read_json(stored_config), read_json(directory / CONFIG_FILE))
    if changes:
        keys = summarize_list([change.key for change in changes])
        raise RunMismatchError(
            f"{folder.url} was started with a different config; these keys differ: {keys}. Choose "
            f"a new `out`, or delete the folder. The new files are in {directory}."
        )


def _other_files_error(folder: RemoteFolder, stored_files: Sequence[str]) -> RunMismatchError:
    """Return the error for a folder with files that no run has written."""
    return RunMismatchError(
        f"{folder.url} holds other files ({summarize_list(stored_files)}) and no run. Choose "
        "a new or empty `out`."
    )


def _check_target(folder: RemoteFolder, out: Path, *, resume: bool, progress: Progress) -> None:
    """Refuse a folder with other content; download a complete run that is resumed."""
    stored_files = folder.list_files()
    if stored_files and CONFIG_FILE not in stored_files:
        raise _other_files_error(folder, stored_files)
    if not set(LAST_FILES) & set(stored_files):
        return
    if not resume:
        raise RunMismatchError(
            f"{folder.url} already holds a run. Continue the same run with `resume=True`, choose "
            "another `out`, or delete the folder."
        )
    if not out.is_dir():
        _download(folder, stored_files, out, progress)


def upload(directory: Path, folder: RemoteFolder, progress: Progress = NO_PROGRESS) -> None:
    """Upload a sealed dataset, a finished shard or run; the file that completes it is written last.

    Files of the folder that the directory does not have are deleted.
    """
    paths = [
        file.relative_to(directory).as_posix()
        for file in sorted(directory.rglob("*"))
        if file.is_file() and file.name != LOCK_FILE and file.suffix != ".tmp"
    ]
    paths.sort(key=lambda path: (path != CONFIG_FILE, path in LAST_FILES))
    # Without its last file, nothing opens until the new upload is complete.
    for path in folder.list_files():
        if path in LAST_FILES or path not in paths:
            folder.delete(path)
    progress.phase("upload", len(paths))
    for path in paths:
        folder.upload(directory / path, path)
        progress.advance(1)


@contextlib.contextmanager
def errors_with_urls(copies: Mapping[Path, str]) -> Iterator[None]:
    """Write the URLs of copies in place of their paths in errors of the block.

    Args:
        copies: URLs by the path of the local copy.
    """
    try:
        yield
    except FsdpoError as error:
        renamed_error = error
        for copy, url in copies.items():
            renamed_error = renamed_error.with_text(str(copy), url)
        raise renamed_error from None


def _check_not_input(name: str, url: str, inputs: Sequence[object]) -> None:
    """Refuse an output that is also an input."""
    if url.rstrip("/") in [str(value).rstrip("/") for value in inputs]:
        raise InputError(
            "this is the dataset that the command reads, and datasets are never changed. Choose a "
            "new folder.",
            field=name,
            value=url,
        )


def expand_folders(locations: Sequence[str | Path]) -> list[str | Path]:
    """Return locations with the folders in a folder in place of a URL that ends in ``/*``.

    A shell expands only local patterns. No other character of a URL is a pattern.

    Raises:
        InputError: if such a folder has no folders.
    """
    expanded: list[str | Path] = []
    for location in locations:
        if not is_url(location) or not str(location).endswith(ALL_FOLDERS):
            expanded.append(location)
            continue
        folder = RemoteFolder(str(location).removesuffix(ALL_FOLDERS))
        urls = folder.list_folders()
        if not urls:
            raise InputError(f"{folder.url} holds no folders. Check the URL before `/*`.")
        expanded += urls
    return expanded
