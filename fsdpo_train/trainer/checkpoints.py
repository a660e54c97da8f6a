"""Checkpoints that are complete or absent, however a run ends.

``transformers`` writes a checkpoint under ``checkpoints/writing``. When all processes are done, its
files are synced, and listed with their SHA-256 in ``digests.json``. The checkpoint is then renamed
to its final path, and only then are older checkpoints removed. The disk therefore needs space for
one checkpoint more than ``save_limit``.

A run resumes from the newest checkpoint whose files all match their digests. Newer checkpoints that
are damaged get the suffix ``.damaged``, and a warning names them. Entries with other names are
ignored. Computing the digests takes about as long as writing the files, and needs no additional
memory. Several files are hashed in parallel.
"""

import errno
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from fsdpo_data.core.files import rename_durably, store_errors, write_atomic
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.core.input_files import read_json

log = logging.getLogger(__name__)

STAGING_FOLDER = "writing"  #: Folder in which checkpoints and models are written.
DIGESTS_FILE = "digests.json"  #: File with the SHA-256 of every file of a checkpoint.
#: If torch cannot write and the disk has fewer free bytes, the disk counts as full.
_MIN_FREE_BYTES = 2**20
_DAMAGED_SUFFIX = ".damaged"  #: End of the name of a checkpoint that no run may use.
_RUST_ERROR_CODE = re.compile(r"\(os error (\d+)\)")
_CHECKPOINT_NAME = re.compile(r"checkpoint-(\d{1,18})")


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
        except Exception as error:
            # The tokenizers raise a plain Exception with the text of Rust's error.
            code = _RUST_ERROR_CODE.search(str(error))
            if code is None:
                raise
            raise OSError(int(code[1]), str(error)) from error
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


def latest_complete_checkpoint(
    folder: Path, find_mismatch: Callable[[Path], str] = lambda checkpoint: ""
) -> Path | None:
    """Return the newest usable checkpoint, or None; newer ones are renamed, with a warning.

    Args:
        folder: Folder of the checkpoints.
        find_mismatch: Returns why a complete checkpoint does not fit the run; empty if it fits.

    Raises:
        StoreError: if a damaged checkpoint cannot be renamed.
    """
    for checkpoint in _newest_first(folder):
        damage = _find_damage(checkpoint) or find_mismatch(checkpoint)
        if not damage:
            return checkpoint
        with store_errors(folder):
            new_name = _set_aside(checkpoint)
        log.warning(
            f"{checkpoint} is damaged: {damage}. Its new name is {new_name}; training resumes from "
            "the checkpoint before it."
        )
    return None


def _set_aside(checkpoint: Path) -> str:
    """Give a damaged checkpoint a name that no run uses, and return the name."""
    new_path = checkpoint.with_name(checkpoint.name + _DAMAGED_SUFFIX)
    number = 1
    while new_path.exists():
        number += 1
        new_path = checkpoint.with_name(f"{checkpoint.name}{_DAMAGED_SUFFIX}-{number}")
    checkpoint.rename(new_path)
    return new_path.name


def _newest_first(folder: Path) -> list[Path]:
    """Return all checkpoints, complete or not, by decreasing step."""
    if not folder.is_dir():
        return []
    checkpoints = {
        int(match[1]): path
        for path in folder.iterdir()
        if (match := _CHECKPOINT_NAME.fullmatch(path.name)) and path.is_dir()
    }
    return [checkpoints[step] for step in sorted(checkpoints, reverse=True)]


def _find_damage(checkpoint: Path) -> str:
    """Return why a checkpoint is not complete; empty if all its files match their digests."""
    digests_file = checkpoint / DIGESTS_FILE
    if not digests_file.is_file():
        return f"it has no {DIGESTS_FILE}"
    try:
        digests = dict(read_json(digests_file))
        files = {
            file.relative_to(checkpoint).as_posix(): file
            for file in _files(checkpoint)
            if file != digests_file
        }
        if files.keys() != digests.keys():
            return f"its files are not those that {DIGESTS_FILE} names"
        names = list(files)
        new_digests = dict(zip(names, _digests([*files.values()]), strict=True))
    except (OSError, ValueError, TypeError) as error:
        return f"{DIGESTS_FILE} or a file cannot be read ({error})"
    changed_names = [name for name in names if new_digests[name] != digests[name]]
    return f"{', '.join(changed_names)} changed after it was written" if changed_names else ""


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
