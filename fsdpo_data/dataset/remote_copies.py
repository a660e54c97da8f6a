"""Copies of datasets and shards on object storage, in the cache of the user.

The files of a copy are verified before it is opened. See :mod:`fsdpo_data.dataset.upload_index` for
the order of the files of an upload.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fsdpo_data.core.errors import SchemaError
from fsdpo_data.core.files import (
    LOCK_FILE,
    acquire_lock,
    store_errors,
    user_cache_folder,
    write_file,
)
from fsdpo_data.core.progress import NO_PROGRESS, Progress
from fsdpo_data.core.remote_folder import RemoteFolder
from fsdpo_data.core.urls import is_url
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.run import MANIFEST_FILE, QUARANTINE_FILE, SHARD_FILE
from fsdpo_data.dataset.upload_index import (
    INDEX_FILE,
    LAST_FILES,
    IndexEntry,
    UploadIndex,
    bytes_sha256,
)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The first and the last file of an upload."""

    index_data: bytes | None  #: Content of ``upload.json``; None if it is missing.
    last_file: str  #: Name of the file that completes the upload; empty if it is missing.
    last_data: bytes  #: Content of the last file.

    @classmethod
    def read(cls, folder: RemoteFolder) -> StoredRun:
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
    stored = StoredRun.read(folder)
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
            if not download_file(folder, entry, partial):
                raise SchemaError(
                    f"{folder.url}/{entry.path} is missing, or differs from the SHA-256 of its "
                    "dataset. Another job may be replacing it: try again, or upload it again."
                )
            progress.advance(1)
        with store_errors(copy):
            partial.rename(copy)
    return copy


def _incomplete_error(folder: RemoteFolder, stored: StoredRun) -> SchemaError:
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


def _read_index(folder: RemoteFolder, stored: StoredRun) -> UploadIndex | None:
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


def _copy_name(stored: StoredRun) -> str:
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
    copy: Path, folder: RemoteFolder, stored: StoredRun, index: UploadIndex | None
) -> bool:
    """Return whether a copy has all files with their digests."""
    last_file = copy / stored.last_file
    if not last_file.is_file() or last_file.read_bytes() != stored.last_data:
        return False
    entries = _needed_entries(copy, folder, stored, index)
    return all(entry.is_content_of(copy / entry.path) for entry in entries)


def _needed_entries(
    copy: Path, folder: RemoteFolder, stored: StoredRun, index: UploadIndex | None
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


def download_file(folder: RemoteFolder, entry: IndexEntry, root: Path) -> bool:
    """Download a file unless it is there; return whether it has its content in the end."""
    file = root / entry.path
    if entry.is_content_of(file):
        return True
    if folder.download(entry.path, file) and entry.is_content_of(file):
        return True
    file.unlink(missing_ok=True)
    return False


def keep_as_copy(directory: Path, index: UploadIndex) -> None:
    """Move an uploaded directory to the copies, where the next command finds it."""
    last_file = index.files[-1].path
    stored = StoredRun(index.to_bytes(), last_file, (directory / last_file).read_bytes())
    copy = user_cache_folder("copies") / _copy_name(stored)
    with _wait_for_copy(copy), store_errors(copy):
        (directory / LOCK_FILE).unlink(missing_ok=True)
        if copy.is_dir():
            shutil.rmtree(directory)
        else:
            directory.rename(copy)
