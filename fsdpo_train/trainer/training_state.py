"""Checks that a checkpoint can be loaded, and continues the steps and the schedule of its run.

transformers skips a file that is missing, and would train other weights.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import TrainerState
from transformers.trainer import (
    OPTIMIZER_NAME,
    SCHEDULER_NAME,
    TRAINER_STATE_NAME,
    safe_globals,
)

from fsdpo_data.core.memory_limit import reraise_memory_error

RANDOM_STATES = {"python", "numpy", "cpu"}  #: Random states that every checkpoint has.


def find_damage(checkpoint: Path, trainer: Any) -> str:
    """Return why a run cannot resume from a checkpoint; empty if it can.

    Args:
        checkpoint: The checkpoint.
        trainer: The trainer of the run, before its first step.
    """
    return next(_find_damages(checkpoint, trainer), "")


def _find_damages(checkpoint: Path, trainer: Any) -> Iterator[str]:
    """Yield what is wrong with the files of a checkpoint."""
    step = int(checkpoint.name.rpartition("-")[2])
    if _load_step(checkpoint / TRAINER_STATE_NAME) != step:
        yield f"{TRAINER_STATE_NAME} cannot be read, or is not the state of step {step}"
    random_states = sorted(checkpoint.glob("rng_state*.pth"))
    for file in random_states or [checkpoint / "rng_state.pth"]:
        if not _load_tensors(file).keys() >= RANDOM_STATES:
            yield f"{file.name} cannot be loaded"
    # DeepSpeed has files of its own.
    has_schedule = not trainer.is_deepspeed_enabled or (checkpoint / SCHEDULER_NAME).exists()
    schedule = _load_tensors(checkpoint / SCHEDULER_NAME)
    if has_schedule and not _is_schedule(schedule, step, trainer):
        yield f"{SCHEDULER_NAME} cannot be loaded, or has the steps or learning rate of another run"
    if trainer.is_deepspeed_enabled:
        return
    if not _load_tensors(checkpoint / OPTIMIZER_NAME):
        yield f"{OPTIMIZER_NAME} cannot be loaded"
    weights = sorted(checkpoint.glob("*.safetensors"))
    if not weights:
        yield "it has no weights"
    yield from (f"{file.name} cannot be loaded" for file in weights if not _has_weights(file))


def _load_step(file: Path) -> int | None:
    """Return the step of a trainer's state; None if the file cannot be loaded."""
    try:
        step = TrainerState.load_from_json(str(file)).global_step
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    return step if isinstance(step, int) else None


def _is_schedule(state: dict[str, Any], step: int, trainer: Any) -> bool:
    """Return whether the state of a schedule has the step and the learning rate of the run."""
    # A step whose gradients overflow counts for the trainer, but not for the schedule. accelerate
    # may advance the schedule once per process.
    max_step = step * trainer.args.world_size
    last_step = state.get("last_epoch")
    rates = state.get("base_lrs")
    if not isinstance(last_step, int) or not isinstance(rates, list):
        return False
    has_step = 0 <= last_step <= max_step
    return has_step and all(rate == trainer.args.learning_rate for rate in rates)


def _has_weights(file: Path) -> bool:
    """Return whether a file of weights has its complete length; its tensors are not read."""
    try:
        with safe_open(file, "pt"):
            return True
    except Exception as error:  # safetensors raises OSError and classes of its own
        reraise_memory_error(error)
        return False


def _load_tensors(file: Path) -> dict[str, Any]:
    """Load a dictionary of torch without reading its tensors; empty if it cannot be loaded."""
    try:
        with safe_globals():
            state = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # unpickling raises many classes
        reraise_memory_error(error)
        return {}
    return state if isinstance(state, dict) else {}
