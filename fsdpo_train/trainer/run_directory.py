"""The directory of a training run, which belongs to one run and is locked by one process.

The file ``{stage}.json`` contains the identity of the run: everything that determines the trained
weights. A run with another identity is refused.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError, RunMismatchError, StoreError
from fsdpo_data.core.files import LOCK_FILE, lock_directory, write_text
from fsdpo_data.core.input_files import read_json
from fsdpo_train.config import TrainConfig

#: Key of the number of tokens whose logits are computed at once. The start of the run chooses it.
HEAD_CHUNK_KEY = "head_chunk_tokens"
#: Files of a run that ended before its first step: the lock, and the log-probabilities of the
#: reference policy. A new run may start next to them.
_LEFTOVER_FILES = {LOCK_FILE, "reference"}


def is_main_process() -> bool:
    """Return whether this process writes the output: exactly one process does under torchrun."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def lock_run_directory(config: TrainConfig, identity: Mapping[str, Any]) -> Iterator[None]:
    """Lock ``config.out`` for a run. The directory is created if it is missing.

    Args:
        config: The options of the run.
        identity: Everything that determines the trained weights, as JSON values.

    Raises:
        InputError: if the directory contains other files, or a run and ``config.resume`` is off.
        RunMismatchError: if the directory contains a run with other options.
        StoreError: if the directory cannot be written, or another process trains in it.
    """
    # Only the main process takes the lock. The other processes of a distributed run share it.
    with lock_directory(
        config.out,
        "training there",
        exclusive=is_main_process(),
        start_files=[_identity_file(config).name],
    ):
        _check_run_directory(config, identity)
        yield


def _check_run_directory(config: TrainConfig, identity: Mapping[str, Any]) -> None:
    """Check that the directory is free, or that the run in it may be resumed."""
    if not _identity_file(config).exists():
        _check_no_other_files(config.out)
        return
    if not config.resume:
        raise InputError(
            "already holds a run. Continue it with `resume=True`, or choose a new directory.",
            field="out",
            value=str(config.out),
        )
    stored = stored_identity(config)
    compared_keys = (stored.keys() | identity.keys()) - {HEAD_CHUNK_KEY}
    changed = {key for key in compared_keys if stored.get(key) != identity.get(key)}
    if changed:
        raise RunMismatchError(
            f"the run was started with other options; these differ: {sorted(changed)}. Resume with "
            "the options and the number of processes of the first start, or choose a new "
            "directory.",
            field="out",
            value=str(config.out),
        )


def _check_no_other_files(folder: Path) -> None:
    """Raise an InputError if the directory contains files that are not part of a run."""
    other_files = sorted({path.name for path in folder.iterdir()} - _LEFTOVER_FILES)
    if not other_files:
        return
    content = "a model" if "config.json" in other_files else ", ".join(other_files[:3])
    raise InputError(
        f"already holds {content}. Choose a new directory.", field="out", value=str(folder)
    )


def _identity_file(config: TrainConfig) -> Path:
    """Return the file with the identity of a run."""
    return config.out / f"{config.stage}.json"


def stored_identity(config: TrainConfig) -> dict[str, Any]:
    """Return the identity of the run in the directory; empty for a directory without a run.

    Raises:
        StoreError: if the file cannot be read.
    """
    file = _identity_file(config)
    if not file.exists():
        return {}
    return read_identity(file, "so the options of its run are unknown. Choose another `out`")


def read_identity(file: Path, remedy: str) -> dict[str, Any]:
    """Read the identity of a run or of a store: a JSON object.

    Args:
        file: The file to read.
        remedy: End of the error message, with the next step.

    Raises:
        StoreError: if the file cannot be read.
    """
    try:
        return dict(read_json(file))
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"{file} cannot be read ({error}), {remedy}.") from None


def write_identity(config: TrainConfig, identity: Mapping[str, Any]) -> None:
    """Write the identity of a run to ``{stage}.json``, which reserves the directory for the run."""
    content = json.dumps(dict(identity), indent=2) + "\n"
    write_text(_identity_file(config), content)
