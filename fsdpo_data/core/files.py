"""Writing to disks: whole files or none, and errors that say what to do."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from fsdpo_data.core.errors import StoreError


@contextlib.contextmanager
def explained(path: Path, *, saved: int) -> Iterator[None]:
    """Turn an operating-system error under ``path`` into a message with a way out."""
    reasons = {
        errno.ENOSPC: "the disk is full; free some space",
        errno.EDQUOT: "the disk quota is used up; free some space",
        errno.EROFS: "the file system is read-only; choose another --out",
        errno.EACCES: "permission denied; choose another --out",
        errno.EPERM: "permission denied; choose another --out",
        errno.ENOTDIR: "a file is in the way; choose another --out",
        errno.EEXIST: "a file is in the way; choose another --out",
    }
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        kept = f" {saved} problems are safe there; then run again with --resume." if saved else "."
        raise StoreError(f"Cannot write to {error.filename or path}: {reason}{kept}") from error


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file under a temporary name, sync it, then rename: whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    publish(temporary, path)


def publish(temporary: Path, path: Path) -> None:
    """Rename a finished, synced file into place and sync the directory."""
    temporary.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
