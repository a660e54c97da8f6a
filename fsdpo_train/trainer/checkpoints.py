"""Checkpoints that are whole or not there, however a run ends.

``transformers`` writes a checkpoint under ``checkpoints/writing``. Once every process has, it is
synced, listed file by file with SHA-256 in ``digests.json``, and renamed into place. Only then do
older ones go, so a disk has to hold one more than ``save_limit``. Runs resume from the newest
whose files are all there as they were written: one that was changed, or half removed, is passed
over. Digests cost about as much as the writing, once in memory; files are hashed at the same time.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from fsdpo_data.core.files import rename_durably, store_errors, write_atomic
from fsdpo_data.core.identity import file_sha256

STAGING_FOLDER, DIGESTS_FILE = "writing", "digests.json"
#: Bytes that a disk on which torch could not write has left, if that was for lack of space.
_MIN_FREE_BYTES = 2**20


@contextmanager
def staging_directory(folder: Path) -> Iterator[Path]:
    """Yield a new place under ``folder`` to write to; it is gone if that fails.

    Raises:
        StoreError: if the disk is full or gone; what was there before stays.
    """
    from safetensors import SafetensorError

    place = folder / STAGING_FOLDER
    with store_errors(folder):
        try:
            yield place
        except (RuntimeError, SafetensorError) as error:  # of torch, which hides the reason
            full = shutil.disk_usage(folder).free < _MIN_FREE_BYTES or "No space left" in str(error)
            raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error
        finally:
            shutil.rmtree(place, ignore_errors=True)


def commit_checkpoint(folder: Path, name: str, limit: int) -> None:
    """Make a checkpoint visible that is written whole; drop all but the newest ``limit``."""
    written = folder / STAGING_FOLDER / name
    files = _files(written)
    for file in files:
        _sync(file)
    names = [file.relative_to(written).as_posix() for file in files]
    told = dict(zip(names, _digests(files), strict=True))
    write_atomic(written / DIGESTS_FILE, json.dumps(told, indent=1).encode())
    _remove_checkpoint(folder / name)  # one that is not whole, or this would not be written again
    rename_durably(written, folder / name)
    for old in _newest_first(folder)[limit:]:
        _remove_checkpoint(old)


def commit_model(folder: Path) -> None:
    """Move a finished model into ``folder``; without its config, which comes last, it is none."""
    for file in sorted(
        _files(folder / STAGING_FOLDER), key=lambda file: file.name == "config.json"
    ):
        _sync(file)
        rename_durably(file, folder / file.name)


def latest_complete_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint; None if there is none."""
    return next(filter(_is_complete, _newest_first(folder)), None)


def _newest_first(folder: Path) -> list[Path]:
    found = folder.glob("checkpoint-*")
    return sorted(found, key=lambda each: -int(each.name.rpartition("-")[2]))


def _is_complete(checkpoint: Path) -> bool:
    try:
        told = json.loads((checkpoint / DIGESTS_FILE).read_bytes())
        return _digests([checkpoint / name for name in told]) == list(told.values())
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def _remove_checkpoint(checkpoint: Path) -> None:
    (checkpoint / DIGESTS_FILE).unlink(missing_ok=True)  # first: half removed it is not whole
    shutil.rmtree(checkpoint, ignore_errors=True)


def _files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.is_file())


def _sync(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _digests(files: Sequence[Path]) -> list[str]:
    with ThreadPoolExecutor() as pool:
        return list(pool.map(file_sha256, files))
