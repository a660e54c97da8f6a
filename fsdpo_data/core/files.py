"""Writing to disks: whole files or none, and errors that say what to do."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fsdpo_data.core.errors import StoreError

LOCK_FILE = ".lock"  #: The file in the folder of a run that the process holds which works there.

_REASONS = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EROFS: "the file system is read-only; choose another `out`",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "permission denied; choose another `out`"),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "a file is in the way; choose another `out`"),
}


@contextlib.contextmanager
def store_errors(path: Path, *, saved_problems: int = 0) -> Iterator[None]:
    """Turn an operating-system error under ``path`` into a message with a way out."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        safe = f" {saved_problems} problems are safe there; then run again with `resume=True`."
        kept = safe if saved_problems else "."
        raise StoreError(f"Cannot write to {error.filename or path}: {reason}{kept}") from error


@contextlib.contextmanager
def lock_directory(
    folder: Path, purpose: str = "writing to this run", *, exclusive: bool = True
) -> Iterator[None]:
    """Make a folder if it is missing, and keep other processes out of it meanwhile.

    ``doing`` is what another process is told; ``alone`` is off for helpers of the one that holds
    it.

    Raises:
        StoreError: if it cannot be written, or another process holds it.
    """
    from filelock import FileLock, Timeout

    with contextlib.ExitStack() as stack:
        with store_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                if exclusive:
                    stack.enter_context(FileLock(folder / LOCK_FILE, blocking=False))
            except Timeout:
                raise StoreError(
                    f"another process is {purpose}. Wait for it to end, or choose another `out`.",
                    field="out",
                    value=str(folder),
                ) from None
        yield


@contextlib.contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write that gets its name once it is written and synced: whole or not at all.

    Raises:
        OSError: naming ``path`` if it cannot be written; nothing is left of it then.
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
    """Write a file whole or not at all."""
    with open_atomic(path) as file:
        file.write(data)


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, its folder too.

    Raises:
        StoreError: if it cannot be written.
    """
    with store_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)


def write_text(path: Path, text: str) -> None:
    """Write a text as :func:`write_file` does; a lone surrogate is no reason to fail."""
    write_file(path, text.encode("utf-8", "backslashreplace"))


def rename_durably(temporary: Path, path: Path) -> None:
    """Rename a finished, synced file into place and sync the directory."""
    temporary.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
