"""Checkpoints that are complete or absent, however a run ends.

``transformers`` writes a checkpoint under ``checkpoints/writing``. When all processes are done, its
files are synced, and listed with their SHA-256 in ``digests.json``. The checkpoint is then renamed
to its final path, and only then are older checkpoints removed. The disk therefore needs space for
one checkpoint more than ``save_limit``.

A run resumes from the newest checkpoint whose files all match their digests. Changed or incomplete
checkpoints are skipped. Computing the digests takes about as long as writing the files, and
needs no additional memory. Several files are hashed in parallel.
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

STAGING_FOLDER = "writing"  #: Folder in which checkpoints and models are written.
DIGESTS_FILE = "digests.json"  #: File with the SHA-256 of every file of a checkpoint.
#: If torch cannot write and the disk has fewer free bytes, the disk counts as full.
_MIN_FREE_BYTES = 2**20


@contextmanager
def staging_directory(folder: Path) -> Iterator[Path]:
    """Yield the path of the staging folder in ``folder``, and remove the folder at the end.

    The block creates the folder and only writes files, because its RuntimeErrors count as failed
    writes.

    Raises:
        StoreError: if the disk is full or not available. Files outside the staging folder stay.
    """
    from safetensors import SafetensorError

    staging = folder / STAGING_FOLDER
    with store_errors(folder):
        try:
            yield staging
        except (RuntimeError, SafetensorError) as error:  # torch hides the reason
            has_space = shutil.disk_usage(folder).free >= _MIN_FREE_BYTES
            is_full = not has_space or "No space left" in str(error)
            raise OSError(errno.ENOSPC if is_full else errno.EIO, str(error)) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def commit_checkpoint(folder: Path, name: str, limit: int) -> None:
    """Move a complete checkpoint out of the staging folder, and remove old checkpoints.

    Args:
        folder: Folder of the checkpoints.
        name: Name of the checkpoint.
        limit: Number of checkpoints that are kept.
    """
    staged = folder / STAGING_FOLDER / name
    files = _files(staged)
    for file in files:
        _sync(file)
    names = [file.relative_to(staged).as_posix() for file in files]
    digests = dict(zip(names, _digests(files), strict=True))
    write_atomic(staged / DIGESTS_FILE, json.dumps(digests, indent=1).encode())
    # A checkpoint that already has this name is incomplete: otherwise, the run would have resumed
    # from it.
    _remove_checkpoint(folder / name)
    rename_durably(staged, folder / name)
    for old_checkpoint in _newest_first(folder)[limit:]:
        _remove_checkpoint(old_checkpoint)


def commit_model(folder: Path) -> None:
    """Move a complete model from the staging folder to ``folder``.

    The config comes last, because transformers does not load a directory without a config.
    """
    for file in sorted(
        _files(folder / STAGING_FOLDER), key=lambda file: file.name == "config.json"
    ):
        _sync(file)
        rename_durably(file, folder / file.name)


def latest_complete_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint, or None."""
    return next(filter(_is_complete, _newest_first(folder)), None)


def _newest_first(folder: Path) -> list[Path]:
    """Return all checkpoints, complete or not, by decreasing step."""
    return sorted(folder.glob("checkpoint-*"), key=_checkpoint_step, reverse=True)


def _checkpoint_step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _is_complete(checkpoint: Path) -> bool:
    try:
        digests = json.loads((checkpoint / DIGESTS_FILE).read_bytes())
        return _digests([checkpoint / name for name in digests]) == list(digests.values())
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def _remove_checkpoint(checkpoint: Path) -> None:
    # Without digests, a checkpoint that is only half removed counts as incomplete.
    (checkpoint / DIGESTS_FILE).unlink(missing_ok=True)
    shutil.rmtree(checkpoint, ignore_errors=True)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _sync(file: Path) -> None:
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def _digests(files: Sequence[Path]) -> list[str]:
    with ThreadPoolExecutor() as pool:
        return list(pool.map(file_sha256, files))
