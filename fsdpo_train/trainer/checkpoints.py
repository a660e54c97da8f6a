"""Checkpoints that are whole or not there, however a run ends.

``transformers`` writes a checkpoint under ``checkpoints/writing``. Once every process has, it is
synced, listed file by file with sizes in ``whole.json``, and renamed into place. Only then do
older ones go, so a disk has to hold one more than ``save_limit``. Runs resume from the newest
whose files are all there: one that was changed by hand, or half removed, is passed over.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fsdpo_data.core.files import explained, publish, write_atomic

WRITING, WHOLE = "writing", "whole.json"
#: Bytes that a disk on which torch could not write has left, if that was for lack of space.
_LITTLE = 2**20


@contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """Yield a new place under ``folder`` to write to; it is gone if that fails.

    Raises:
        StoreError: if the disk is full or gone; what was there before stays.
    """
    from safetensors import SafetensorError

    place = folder / WRITING
    with explained(folder):
        try:
            yield place
        except (RuntimeError, SafetensorError) as error:  # of torch, which hides the reason
            full = shutil.disk_usage(folder).free < _LITTLE or "No space left" in str(error)
            raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error
        finally:
            shutil.rmtree(place, ignore_errors=True)


def settle(folder: Path, name: str, limit: int) -> None:
    """Make a checkpoint visible that is written whole; drop all but the newest ``limit``."""
    written = folder / WRITING / name
    sizes = {file.relative_to(written).as_posix(): _synced(file) for file in _files(written)}
    write_atomic(written / WHOLE, json.dumps(sizes, indent=1).encode())
    _drop(folder / name)  # one that is not whole, or this would not be written again
    publish(written, folder / name)
    for old in _newest_first(folder)[limit:]:
        _drop(old)


def settle_model(folder: Path) -> None:
    """Move a finished model into ``folder``; without its config, which comes last, it is none."""
    for file in sorted(_files(folder / WRITING), key=lambda file: file.name == "config.json"):
        _synced(file)
        publish(file, folder / file.name)


def last_whole(folder: Path) -> Path | None:
    """Return the newest whole checkpoint; None if there is none."""
    return next(filter(_is_whole, _newest_first(folder)), None)


def _newest_first(folder: Path) -> list[Path]:
    found = folder.glob("checkpoint-*")
    return sorted(found, key=lambda each: -int(each.name.rpartition("-")[2]))


def _is_whole(checkpoint: Path) -> bool:
    try:
        sizes = json.loads((checkpoint / WHOLE).read_bytes())
        return all((checkpoint / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _drop(checkpoint: Path) -> None:
    (checkpoint / WHOLE).unlink(missing_ok=True)  # first: half removed it is not whole
    shutil.rmtree(checkpoint, ignore_errors=True)


def _files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.is_file())


def _synced(file: Path) -> int:
    """Wait until a file is on disk; return its size."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
    return file.stat().st_size
