"""Atomic file writes, directory locks, and readable errors for failed writes."""

import contextlib
import errno
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

from fsdpo_data.core.errors import StoreError

LOCK_FILE = ".lock"  #: Name of the file that locks a run directory for one process.

#: Reason and next step by ``errno``.
_REASONS = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EROFS: "the file system is read-only; choose another `out`",
    errno.EACCES: "permission denied; choose another `out`",
    errno.EPERM: "permission denied; choose another `out`",
    errno.ENOTDIR: "a file is in the way; choose another `out`",
    errno.EEXIST: "a file is in the way; choose another `out`",
}


def user_cache_folder(name: str) -> Path:
    """Return a folder of this package in the cache of the user, which all runs share."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "fsdpo" / name


@contextlib.contextmanager
def store_errors(path: Path, *, saved_problems: int = 0) -> Iterator[None]:
    """Turn any OSError into a StoreError with the reason and the next step.

    Args:
        path: The path to report if the error has no file name.
        saved_problems: Number of math problems whose solutions are already on disk, for the
            message.

    Raises:
        StoreError: for any OSError inside the block.
    """
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        message = f"Cannot write to {error.filename or path}: {reason}."
        if saved_problems:
            message += (
                f" {saved_problems} problems are already saved; run again with `resume=True`."
            )
        raise StoreError(message) from error


@contextlib.contextmanager
def lock_directory(
    folder: Path,
    purpose: str = "writing to this run",
    *,
    start_files: Collection[str] = (),
) -> Iterator[None]:
    """Create a folder if it is missing, and lock it against other processes.

    If the block raises an error before it has written a result, the folder is as before. Empty
    files are no result.

    Args:
        folder: The folder to lock.
        purpose: The work of the lock owner; other processes see it in their error.
        start_files: Names of files that the owner writes before any result.

    Raises:
        StoreError: if the folder is not writable, or another process has the lock.
    """
    with contextlib.ExitStack() as stack:
        with store_errors(folder):
            is_new = not os.path.lexists(folder)
            folder.mkdir(parents=True, exist_ok=True)
            old_names = set(os.listdir(folder))
            stack.enter_context(lock_file(folder / LOCK_FILE, purpose))
        try:
            yield
        except Exception:
            _remove_start_files(folder, old_names, {LOCK_FILE, *start_files}, is_new=is_new)
            raise


def _remove_start_files(
    folder: Path, old_names: set[str], start_files: set[str], *, is_new: bool
) -> None:
    """Remove the files of the start of a run, and a new folder, unless there is a result."""
    with contextlib.suppress(OSError):  # the error that ended the run is more important
        new_paths = [folder / name for name in set(os.listdir(folder)) - old_names]
        if not any(_has_result(path, start_files) for path in new_paths):
            for path in new_paths:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if is_new:
                folder.rmdir()


def _has_result(path: Path, start_files: Collection[str]) -> bool:
    """Return whether a path is a file with content, or a folder with one; start files are none."""
    if path.name in start_files:
        return False
    if path.is_dir() and not path.is_symlink():
        return any(_has_result(child, start_files) for child in path.iterdir())
    return path.is_symlink() or path.stat().st_size > 0


def lock_file(
    file: Path, purpose: str, *, wait: bool = False
) -> contextlib.AbstractContextManager[object]:
    """Acquire a lock against other processes.

    Args:
        file: The file that stands for the lock.
        purpose: The work of the lock owner; other processes see it in their error.
        wait: Whether to wait while another process has the lock.

    Raises:
        StoreError: if another process has the lock, and ``wait`` is off.
    """
    from filelock import FileLock, Timeout

    try:
        return FileLock(file, blocking=wait).acquire()
    except Timeout:
        raise StoreError(
            f"another process is {purpose}. Wait for it to end, or choose another `out`.",
            field="out",
            value=str(file.parent),
        ) from None


@contextlib.contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces ``path`` after it is complete and synced.

    Raises:
        OSError: with ``path`` as its file name if the write fails; no partial file remains.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        rename_durably(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file completely or not at all."""
    with open_atomic(path) as file:
        file.write(data)


def write_file(path: Path, data: bytes) -> None:
    """Write a file completely or not at all, and create its folder.

    Raises:
        StoreError: if the write fails.
    """
    with store_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)


def write_text(path: Path, text: str) -> None:
    """Write a text with :func:`write_file`; lone surrogates become backslash escapes."""
    write_file(path, text.encode("utf-8", "backslashreplace"))


def rename_durably(temporary: Path, path: Path) -> None:
    """Rename a complete, synced file to ``path``, and sync the directory."""
    temporary.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
