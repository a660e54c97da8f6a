"""Checkpoints that are complete or absent, however a run ends.

``transformers`` writes a checkpoint under ``checkpoints/writing``. When all processes are done, its
files are synced, and the checkpoint is renamed to its final path. Only then are older checkpoints
removed. The disk therefore needs space for one checkpoint more than ``save_limit``.

A run resumes from the newest checkpoint that can be loaded. Newer ones get the suffix ``.damaged``,
and a warning names them. Entries with other names are ignored.
"""

import errno
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fsdpo_data.core.files import rename_durably, store_errors

log = logging.getLogger(__name__)

STAGING_FOLDER = "writing"  #: Folder in which checkpoints and models are written.
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

    An old checkpoint moves into the staging folder, which :func:`staging_directory` removes. A
    removal that is killed therefore leaves no part of a checkpoint.

    Args:
        folder: Folder of the checkpoints.
        name: Name of the checkpoint.
        limit: Number of checkpoints that are kept.
    """
    staged = folder / STAGING_FOLDER / name
    for file in _files(staged):
        _sync(file)
    rename_durably(staged, folder / name)
    for old_checkpoint in _newest_first(folder)[limit:]:
        old_checkpoint.rename(folder / STAGING_FOLDER / old_checkpoint.name)


def commit_model(folder: Path) -> None:
    """Move a complete model from the staging folder to ``folder``.

    The config comes last, because transformers does not load a directory without a config.
    """
    for file in sorted(
        _files(folder / STAGING_FOLDER), key=lambda file: file.name == "config.json"
    ):
        _sync(file)
        rename_durably(file, folder / file.name)


def latest_checkpoint(folder: Path, find_damage: Callable[[Path], str]) -> Path | None:
    """Return the newest usable checkpoint, or None; newer ones are renamed, with a warning.

    Args:
        folder: Folder of the checkpoints.
        find_damage: Returns why a run cannot resume from a checkpoint; empty if it can.

    Raises:
        StoreError: if a damaged checkpoint cannot be renamed.
    """
    for checkpoint in _newest_first(folder):
        damage = find_damage(checkpoint)
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
    """Return all checkpoints by decreasing step."""
    if not folder.is_dir():
        return []
    checkpoints = {
        int(match[1]): path
        for path in folder.iterdir()
        if (match := _CHECKPOINT_NAME.fullmatch(path.name)) and path.is_dir()
    }
    return [checkpoints[step] for step in sorted(checkpoints, reverse=True)]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _sync(file: Path) -> None:
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
