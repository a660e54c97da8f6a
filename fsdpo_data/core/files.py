"""Atomic file writes, directory locks, and readable errors for failed writes."""

import contextlib
import errno
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fsdpo_data.core.errors import StoreError

LOCK_FILE = ".lock"  #: Name of the file that locks a run directory for one process.

_LOCK_WRITING_SECONDS = 10.0  #: Most seconds in which a process writes its lock file.

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
    folder: Path, purpose: str = "writing to this run", *, exclusive: bool = True
) -> Iterator[None]:
    """Create a folder if it is missing, and lock it against other processes.

    Args:
        folder: The folder to lock.
        purpose: The work of the lock owner; other processes see it in their error.
        exclusive: Whether to take the lock. Helper processes of the owner only create the folder.

    Raises:
        StoreError: if the folder is not writable, or another process has the lock.
    """
    with contextlib.ExitStack() as stack:
        with store_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if exclusive:
                stack.enter_context(_lock_file(folder, purpose))
        yield


def _lock_file(folder: Path, purpose: str) -> contextlib.AbstractContextManager[object]:
    """Acquire the lock of a folder at once.

    Without ``flock``, the lock is a file with host, process id and start time. It is stale if no
    such process lives on this machine.

    Raises:
        StoreError: if another process has the lock.
    """
    from filelock import Timeout

    file = folder / LOCK_FILE
    for is_retry in (False, True):
        try:
            return acquire_lock(file, blocking=False)
        except Timeout:
            has_flock = _supports_flock(file)
            if is_retry or has_flock or not _is_abandoned(file):
                break
            file.unlink(missing_ok=True)
    advice = "Wait for it to end, or choose another `out`."
    if not has_flock:
        advice += f" If it ran on another machine and has ended, delete {file}."
    raise StoreError(f"another process is {purpose}. {advice}", field="out", value=str(folder))


def acquire_lock(file: Path, *, blocking: bool) -> contextlib.AbstractContextManager[object]:
    """Acquire a lock file, which is released at the end of the returned context.

    Raises:
        filelock.Timeout: if another process has the lock, without ``blocking``.
    """
    from filelock import FileLock

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # filelock warns about missing flock
        return FileLock(file, blocking=blocking).acquire()


def _supports_flock(file: Path) -> bool:
    """Return whether the file system of a file has locks that end with their process."""
    import fcntl

    try:
        with file.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno != errno.ENOSYS
    return True


def _is_abandoned(file: Path) -> bool:
    """Return whether a lock file without ``flock`` names no process, and is not being written.

    A run on another file system leaves such a file.
    """
    try:
        status = file.stat()
    except FileNotFoundError:
        return True
    return not status.st_size and time.time() - status.st_mtime > _LOCK_WRITING_SECONDS


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
