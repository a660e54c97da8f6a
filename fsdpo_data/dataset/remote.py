"""Datasets and shards on object storage: local copies of inputs, and uploads of outputs.

Commands work on local directories. An input is downloaded to a copy in the cache of the user, whose
files are verified before it is opened. An output is written to a local directory, sealed, and
uploaded as a whole. See :mod:`fsdpo_data.dataset.upload_index` for the order of the files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fsdpo_data.core.errors import FsdpoError, InputError, RunMismatchError, SchemaError
from fsdpo_data.core.files import (
    LOCK_FILE,
    acquire_lock,
    lock_directory,
    store_errors,
    user_cache_folder,
    write_file,
)
from fsdpo_data.core.options import Options, declared_fields
from fsdpo_data.core.progress import NO_PROGRESS, Progress
from fsdpo_data.core.remote_folder import RemoteFolder
from fsdpo_data.core.row_files import summarize_list
from fsdpo_data.core.urls import is_url
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.run import CONFIG_FILE, MANIFEST_FILE, QUARANTINE_FILE, SHARD_FILE
from fsdpo_data.dataset.upload_index import (
    INDEX_FILE,
    LAST_FILES,
    IndexEntry,
    UploadIndex,
    bytes_sha256,
    run_digest,
)

OptionsT = TypeVar("OptionsT", bound=Options)

ALL_FOLDERS = "/*"  #: End of a URL that stands for all folders in a folder.
_RESTORE_FOLDER = ".restore"  #: Folder of a run that is being downloaded to continue.
#: Index of the upload from which the local directory of an output was restored.
_RESTORED_INDEX_FILE = ".restored.json"
_NAME_CHARS = 40  #: Characters of a URL in the name of its folder in the cache.


@dataclass(frozen=True, slots=True)
class _StoredRun:
    """The first and the last file of an upload."""

    index_data: bytes | None  #: Content of ``upload.json``; None if it is missing.
    last_file: str  #: Name of the file that completes the upload; empty if it is missing.
    last_data: bytes  #: Content of the last file.

    @classmethod
    def read(cls, folder: RemoteFolder) -> _StoredRun:
        """Read both files; the last file is read first, because an upload writes it last."""
        last_file = ""
        last_data = b""
        for name in LAST_FILES:
            data = folder.read(name)
            if data is not None:
                last_file = name
                last_data = data
                break
        return cls(folder.read(INDEX_FILE), last_file, last_data)


@contextlib.contextmanager
def local_paths(options: OptionsT, progress: Progress = NO_PROGRESS) -> Iterator[OptionsT]:
    """Yield options with local directories in place of URLs; upload the output after the block.

    The fields with ``Option.dataset`` hold datasets. If the block fails, nothing is uploaded, and
    the local files of the output stay for ``resume``.

    Raises:
        InputError: if the output is also an input.
        RunMismatchError: if the output's folder holds another run or other files.
        SchemaError: if an input is not a complete dataset or shard, or is damaged.
        UnavailableError: if a store cannot be reached, or refuses.
    """
    declarations = declared_fields(type(options)).items()
    roles = {name: field.option.dataset for name, field in declarations if field.option.dataset}
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
            stack.enter_context(_errors_with_urls(copies))
        yield dataclasses.replace(options, **local_values) if local_values else options  # type: ignore[type-var]


@contextlib.contextmanager
def _errors_with_urls(copies: Mapping[Path, str]) -> Iterator[None]:
    """Write the URLs of copies in place of their paths in errors of the block."""
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
            "a sealed dataset is never changed. Choose a new folder.", field=name, value=url
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


def local_copy(location: str | Path, progress: Progress = NO_PROGRESS) -> Path:
    """Return the directory of a dataset or shard; a URL is first copied to the cache.

    The name of the copy is the digest of the manifest, or of the index of a shard. Every file is
    compared with its SHA-256 before the copy gets this name, and again whenever the copy is used.

    Args:
        location: A local directory, which is returned as it is, or a URL.
        progress: Receives the progress of the download.

    Raises:
        SchemaError: if the folder holds no complete dataset or shard, or a file differs.
        StoreError: if the cache cannot be written.
        UnavailableError: if the store cannot be reached, or refuses.
    """
    if not is_url(location):
        return Path(location)
    folder = RemoteFolder(str(location))
    stored = _StoredRun.read(folder)
    if not stored.last_file:
        raise _incomplete_error(folder, stored)
    index = _read_index(folder, stored)
    copy = user_cache_folder("copies") / _copy_name(stored)
    with _wait_for_copy(copy):
        if _is_complete_copy(copy, folder, stored, index):
            return copy
        partial = copy.with_name(copy.name + ".partial")
        _move_damaged_copy(copy, partial)
        write_file(partial / stored.last_file, stored.last_data)
        entries = _needed_entries(partial, folder, stored, index)
        progress.phase("download", len(entries))
        for entry in entries:
            if not _download(folder, entry, partial):
                raise SchemaError(
                    f"{folder.url}/{entry.path} is missing, or differs from the SHA-256 of its "
                    "dataset. Another job may be replacing it: try again, or upload it again."
                )
            progress.advance(1)
        with store_errors(copy):
            partial.rename(copy)
    return copy


def _incomplete_error(folder: RemoteFolder, stored: _StoredRun) -> SchemaError:
    """Return the error for a folder without a last file."""
    if stored.index_data is not None:
        return SchemaError(
            f"{folder.url} is an unfinished upload. Finish it with the command that started it and "
            "`resume=True`."
        )
    return SchemaError(
        f"{folder.url} holds no dataset ({MANIFEST_FILE} is missing) and no finished shard "
        f"({SHARD_FILE} is missing). Check the URL."
    )


def _read_index(folder: RemoteFolder, stored: _StoredRun) -> UploadIndex | None:
    """Return the index of a complete upload; None for a dataset that another program copied.

    Raises:
        SchemaError: if the index is damaged, missing for a shard, or belongs to another upload.
    """
    if stored.index_data is None:
        if stored.last_file == SHARD_FILE:
            raise SchemaError(f"{folder.url}/{INDEX_FILE} is missing. Upload the shard again.")
        return None
    index = UploadIndex.parse(stored.index_data, folder.url)
    last_entry = index.files[-1]
    if (last_entry.path, last_entry.sha256) != (stored.last_file, bytes_sha256(stored.last_data)):
        raise SchemaError(
            f"{folder.url}/{stored.last_file} differs from {INDEX_FILE}. Another job may be "
            "replacing the dataset: try again, or delete the folder and upload it again."
        )
    return index


def _copy_name(stored: _StoredRun) -> str:
    """Return the name of a copy: the digest of the manifest, or of the index of a shard."""
    data = stored.last_data
    if stored.last_file == SHARD_FILE:
        data = stored.index_data or b""
    return bytes_sha256(data)


@contextlib.contextmanager
def _wait_for_copy(copy: Path) -> Iterator[None]:
    """Lock a copy; wait while another process downloads it."""
    with store_errors(copy):
        copy.parent.mkdir(parents=True, exist_ok=True)
    with store_errors(copy), acquire_lock(copy.with_name(copy.name + ".lock"), blocking=True):
        yield


def _is_complete_copy(
    copy: Path, folder: RemoteFolder, stored: _StoredRun, index: UploadIndex | None
) -> bool:
    """Return whether a copy has all files with their digests."""
    last_file = copy / stored.last_file
    if not last_file.is_file() or last_file.read_bytes() != stored.last_data:
        return False
    entries = _needed_entries(copy, folder, stored, index)
    return all(entry.is_content_of(copy / entry.path) for entry in entries)


def _needed_entries(
    copy: Path, folder: RemoteFolder, stored: _StoredRun, index: UploadIndex | None
) -> list[IndexEntry]:
    """Return the files that a reader needs besides the last file, which ``copy`` already has.

    A dataset is read without its logs of raw completions.
    """
    if stored.last_file == SHARD_FILE:
        return [] if index is None else index.files[:-1]
    try:
        manifest = read_manifest(copy)
    except SchemaError as error:
        raise SchemaError(f"{folder.url}: {error}") from None
    entries = [
        IndexEntry(path=entry.path, bytes=entry.bytes, sha256=entry.sha256)
        for entry in manifest.files
    ]
    quarantine_entry = None if index is None else index.entry(QUARANTINE_FILE)
    return entries if quarantine_entry is None else [*entries, quarantine_entry]


def _move_damaged_copy(copy: Path, partial: Path) -> None:
    """Move a damaged copy to where it is completed; its intact files are not downloaded again."""
    if not copy.is_dir():
        return
    with store_errors(copy):
        shutil.rmtree(partial, ignore_errors=True)
        copy.rename(partial)


def _download(folder: RemoteFolder, entry: IndexEntry, root: Path) -> bool:
    """Download a file unless it is there; return whether it has its content in the end."""
    file = root / entry.path
    if entry.is_content_of(file):
        return True
    if folder.download(entry.path, file) and entry.is_content_of(file):
        return True
    file.unlink(missing_ok=True)
    return False


@contextlib.contextmanager
def _local_output(url: str, *, resume: bool, progress: Progress) -> Iterator[Path]:
    """Yield the local directory of an output, and upload the directory after the block.

    A stage may create further datasets next to its output, which are uploaded next to the URL.
    """
    folder = RemoteFolder(url)
    parent_url = folder.url.removesuffix(f"/{folder.name}")
    working_folder = user_cache_folder("outputs") / _working_name(folder.url)
    with lock_directory(working_folder, f"writing to {folder.url}"):
        out = working_folder / folder.name
        restored_index_file = working_folder / _RESTORED_INDEX_FILE
        was_empty = not _has_files(out)
        if was_empty:
            restored_index_file.unlink(missing_ok=True)
            _restore(folder, out, restored_index_file, resume=resume, progress=progress)
        elif (out / CONFIG_FILE).is_file():
            _check_same_run(folder, run_digest(out))
        try:
            yield out
        except RunMismatchError:
            if was_empty:  # the files are those of another run, which the folder still has
                shutil.rmtree(out, ignore_errors=True)
            raise
        other_outputs = [
            directory
            for directory in sorted(working_folder.iterdir())
            if directory.is_dir() and directory != out and not directory.name.startswith(".")
        ]
        directories = [*other_outputs, out]
        indices = []
        for directory in directories:
            target = RemoteFolder(f"{parent_url}/{directory.name}")
            index = upload(
                directory,
                target,
                resume=resume,
                restored_index=_read_if_present(restored_index_file),
                progress=progress,
            )
            indices.append(index)
        restored_index_file.unlink(missing_ok=True)
        for directory, index in zip(directories, indices, strict=True):
            _keep_as_copy(directory, index)


def _working_name(url: str) -> str:
    """Return the name of the working folder of an output, which people can recognise."""
    words = re.sub(r"[^\w.-]+", "-", url.partition("://")[2]).strip("-.")
    return f"{words[-_NAME_CHARS:]}-{hashlib.sha256(url.encode()).hexdigest()[:16]}"


def _has_files(directory: Path) -> bool:
    """Return whether a directory holds the files of a run."""
    return directory.is_dir() and any(file.name != LOCK_FILE for file in directory.iterdir())


def _read_if_present(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def _restore(
    folder: RemoteFolder,
    out: Path,
    restored_index_file: Path,
    *,
    resume: bool,
    progress: Progress,
) -> None:
    """Prepare the directory of an output that has no local files.

    With ``resume``, the files of an earlier upload are downloaded in their order, up to the first
    file that is missing or differs. The run then continues from them. ``restored_index_file`` gets
    the index of the upload.

    Raises:
        RunMismatchError: if the folder holds other files, or holds a run and ``resume`` is off.
    """
    stored = _StoredRun.read(folder)
    if stored.index_data is None and not stored.last_file:
        _check_empty(folder)
        return
    if not resume or stored.index_data is None:
        raise RunMismatchError(
            f"{folder.url} already holds a run. Continue the same run with `resume=True`, choose "
            "another `out`, or delete the folder."
        )
    index = UploadIndex.parse(stored.index_data, folder.url)
    restored = out.with_name(_RESTORE_FOLDER)
    progress.phase("download", len(index.files))
    for entry in index.files:
        if not _download(folder, entry, restored):
            break
        progress.advance(1)
    if restored.is_dir():
        write_file(restored_index_file, stored.index_data)
        with store_errors(out):
            shutil.rmtree(out, ignore_errors=True)
            restored.rename(out)


def _check_same_run(folder: RemoteFolder, run: str) -> None:
    """Refuse a folder that another run has claimed, before any work."""
    index_data = folder.read(INDEX_FILE)
    if index_data is not None and UploadIndex.parse(index_data, folder.url).run != run:
        raise RunMismatchError(
            f"{folder.url} holds another run. Choose another `out`, or delete the folder."
        )


def _check_empty(folder: RemoteFolder) -> None:
    """Refuse a folder with files of other programs."""
    files = folder.list_files()
    if files:
        raise RunMismatchError(
            f"{folder.url} holds other files ({summarize_list(sorted(files))}) and no run. Choose "
            "a new or empty `out`."
        )


def upload(
    directory: Path,
    folder: RemoteFolder,
    *,
    resume: bool,
    restored_index: bytes | None = None,
    progress: Progress = NO_PROGRESS,
) -> UploadIndex:
    """Upload a sealed dataset or a finished shard; the file that completes it is written last.

    Files that an interrupted upload has written are not sent again.

    Args:
        directory: The local directory.
        folder: The target.
        resume: Whether the folder may hold an unfinished upload of the same run.
        restored_index: Index of the complete upload from which the directory was restored. The
            upload is replaced, for example after a retry of failed items. None if there is none.
        progress: Receives the number of uploaded files.

    Returns:
        The index of the upload.

    Raises:
        RunMismatchError: if the folder holds another run or other files, or if another job has
            claimed the folder meanwhile.
        UnavailableError: if the store cannot be reached, or refuses.
    """
    index = UploadIndex.from_directory(directory)
    changed_paths = _claim(folder, index, resume=resume, restored_index=restored_index)
    sizes = folder.list_files()
    missing_entries = [
        entry
        for entry in index.files
        if entry.path in changed_paths or sizes.get(entry.path) != entry.bytes
    ]
    n_files = len(index.files)
    progress.phase("upload", n_files, done=n_files - len(missing_entries))
    last_entry = index.files[-1]
    for entry in missing_entries:
        if entry is last_entry:
            _check_claim(folder, index)
        folder.upload(directory / entry.path, entry.path)
        progress.advance(1)
    return index


def _claim(
    folder: RemoteFolder, index: UploadIndex, *, resume: bool, restored_index: bytes | None
) -> set[str]:
    """Write the index as the first file, after the files of another index have been deleted.

    A file in the folder that has its size in the index is therefore complete.

    Returns:
        The paths of the deleted files. Another job may still be writing them.
    """
    data = index.to_bytes()
    stored_data = folder.read(INDEX_FILE)
    if stored_data is None:
        _check_empty(folder)
        if folder.create(INDEX_FILE, data):
            return set()
        stored_data = folder.read(INDEX_FILE) or b""
    if stored_data == data:
        return set()
    _check_same_run(folder, index.run)
    last_files = [name for name in LAST_FILES if folder.read(name) is not None]
    if not resume or (last_files and stored_data != restored_index):
        raise RunMismatchError(
            f"another job has uploaded the same run to {folder.url}, or is uploading it. Use its "
            "files, or choose another `out`."
        )
    old_entries = UploadIndex.parse(stored_data, folder.url).files
    changed_paths = {entry.path for entry in old_entries if index.entry(entry.path) != entry}
    # Without its last file, nothing opens until the new upload is complete.
    for path in [*last_files, *sorted(changed_paths.difference(last_files))]:
        folder.delete(path)
    folder.write(INDEX_FILE, data)
    return changed_paths


def _check_claim(folder: RemoteFolder, index: UploadIndex) -> None:
    """Check before the last file that the folder is still of this upload, and has all files."""
    if folder.read(INDEX_FILE) != index.to_bytes():
        raise RunMismatchError(
            f"another job has started to upload to {folder.url}. This job stops, so that the files "
            "of both are not mixed."
        )
    sizes = folder.list_files()
    paths = [entry.path for entry in index.files[:-1] if sizes.get(entry.path) != entry.bytes]
    if paths:
        raise RunMismatchError(
            f"{folder.url} has lost files that were just uploaded ({summarize_list(paths)}). "
            "Another job may write there: run the command again with `resume=True`."
        )


def _keep_as_copy(directory: Path, index: UploadIndex) -> None:
    """Move an uploaded directory to the copies, where the next command finds it."""
    last_file = index.files[-1].path
    stored = _StoredRun(index.to_bytes(), last_file, (directory / last_file).read_bytes())
    copy = user_cache_folder("copies") / _copy_name(stored)
    with _wait_for_copy(copy), store_errors(copy):
        (directory / LOCK_FILE).unlink(missing_ok=True)
        if copy.is_dir():
            shutil.rmtree(directory)
        else:
            directory.rename(copy)
