"""The directory of a training run: one process's at a time, and one run's for good.

``{stage}.json`` says what the run is; a directory started under other options is refused.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError, RunMismatchError, StoreError
from fsdpo_data.core.files import LOCK_FILE, lock_directory, write_text
from fsdpo_train.config import TrainConfig

_LEFTOVER_FILES = {LOCK_FILE, "reference"}  #: What a start that ended before its first step may leave.


def is_main_process() -> bool:
    """Say whether this process speaks for the run; under torchrun, one of them does."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def lock_run_directory(config: TrainConfig, identity: Mapping[str, str]) -> Iterator[None]:
    """Hold ``config.out``, made if it is missing, for the run whose weights ``identity`` decides.

    Raises:
        InputError: if it holds other files, or a run and ``config.resume`` is off.
        RunMismatchError: if it holds a run with other options.
        StoreError: if it cannot be written, or another process trains in it.
    """
    with lock_directory(config.out, "training there", exclusive=is_main_process()):
        _check_run_directory(config, identity)
        yield


def _check_run_directory(config: TrainConfig, identity: Mapping[str, str]) -> None:
    state, out = config.out / f"{config.stage}.json", {"field": "out", "value": str(config.out)}
    if not state.exists():
        strangers = sorted({each.name for each in config.out.iterdir()} - _LEFTOVER_FILES)
        if strangers:
            what = "a model" if "config.json" in strangers else ", ".join(strangers[:3])
            raise InputError(f"already holds {what}. Choose a new directory.", **out)
        return
    if not config.resume:
        told = "already holds a run. Continue it by `resume=True`, or choose a new directory."
        raise InputError(told, **out)
    way_out = "so nobody can say what was trained there. Choose another `out`"
    before = read_state(state, way_out)
    changed = {key for key in before.keys() | identity if before.get(key) != identity.get(key)}
    if changed:
        raise RunMismatchError(
            f"it was started with other options; these differ: {sorted(changed)}. Resume with the "
            "options of the first start, or choose a new directory.",
            **out,
        )


def read_state(file: Path, remedy: str) -> dict[str, Any]:
    """Read what a directory says that it holds; a StoreError with the way out if it cannot be."""
    try:
        return dict(json.loads(file.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"{file} cannot be read ({error}), {remedy}.") from None


def write_state(config: TrainConfig, identity: Mapping[str, str]) -> None:
    """Make the directory this run's."""
    write_text(config.out / f"{config.stage}.json", json.dumps(dict(identity), indent=2) + "\n")
