"""Outputs on object storage: local working directories, and their uploads.

A run writes to a local directory, which is sealed and then uploaded as a whole. See
:mod:`fsdpo_data.dataset.upload_index` for the order of the files.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from fsdpo_data.core.errors import RunMismatchError
from fsdpo_data.core.files import (
    LOCK_FILE,
    lock_directory,
    store_errors,
    user_cache_folder,
    write_file,
)
from fsdpo_data.core.progress import NO_PROGRESS, Progress
from fsdpo_data.core.remote_folder import RemoteFolder
from fsdpo_data.core.row_files import summarize_list
from fsdpo_data.dataset.remote_copies import StoredRun, download_file, keep_as_copy
from fsdpo_data.dataset.run import CONFIG_FILE
from fsdpo_data.dataset.upload_index import INDEX_FILE, LAST_FILES, UploadIndex, run_digest

_RESTORE_FOLDER = ".restore"  #: Folder of a run that is being downloaded to continue.
#: Index of the upload from which the local directory of an output was restored.
_RESTORED_INDEX_FILE = ".restored.json"
_NAME_CHARS = 40  #: Characters of a URL in the name of its folder in the cache.


@contextlib.contextmanager
def local_output(url: str, *, resume: bool, progress: Progress) -> Iterator[Path]:
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
            if was_empty:  # the files belong to another run, which the folder still has
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
            keep_as_copy(directory, index)


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
    stored = StoredRun.read(folder)
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
        if not download_file(folder, entry, restored):
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
