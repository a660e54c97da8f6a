"""Checks of the files that continue a run: the trainer's state, the optimizer and the schedule.

The digests of a checkpoint show damaged files. The checks of this module show files that belong to
another run, or that a person has edited. With such files, transformers would stop with a traceback,
or would train other weights.
"""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerState
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME

from fsdpo_data.core.errors import StoreError
from fsdpo_data.core.memory_limit import reraise_memory_error

#: Entries of an optimizer's state that have the shape of their parameter.
_PARAMETER_SHAPED = ("exp_avg", "exp_avg_sq", "momentum_buffer", "state1", "state2")


def find_state_mismatch(checkpoint: Path, trainer: Any) -> str:
    """Return why the state in a checkpoint does not fit a run; empty if it fits.

    Args:
        checkpoint: The checkpoint.
        trainer: The trainer of the run, before its first step.
    """
    try:
        return (
            _find_step_mismatch(checkpoint)
            or _find_schedule_mismatch(checkpoint, trainer)
            or _find_optimizer_mismatch(checkpoint, trainer)
        )
    except RecursionError:
        return f"{TRAINER_STATE_NAME} is nested too deeply"


def _find_step_mismatch(checkpoint: Path) -> str:
    """Check the trainer's state against the name of the checkpoint."""
    file = checkpoint / TRAINER_STATE_NAME
    try:
        state = TrainerState.load_from_json(str(file))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        return f"{file.name} cannot be read ({error})"
    step = int(checkpoint.name.rpartition("-")[2])
    if isinstance(state.global_step, bool) or state.global_step != step:
        return f"{file.name} says step {state.global_step!r}, expected {step}"
    has_epoch = isinstance(state.epoch, int | float) and 0 <= state.epoch < math.inf
    history = state.log_history
    has_history = isinstance(history, list) and all(isinstance(entry, dict) for entry in history)
    has_callbacks = isinstance(state.stateful_callbacks, dict)
    if not (has_epoch and has_history and has_callbacks):
        return f"{file.name} has values of a wrong type"
    return ""


def _find_schedule_mismatch(checkpoint: Path, trainer: Any) -> str:
    """Check that the state of the schedule has the step and the learning rate of the run."""
    file = checkpoint / SCHEDULER_NAME
    if trainer.is_deepspeed_enabled and not file.exists():  # DeepSpeed has files of its own
        return ""
    state = _load_tensors(file)
    if not isinstance(state, dict) or not isinstance(state.get("last_epoch"), int):
        return f"{file.name} is not the state of a learning-rate schedule"
    # A step whose gradients overflow counts for the trainer, but not for the schedule. accelerate
    # may advance the schedule once per process.
    max_step = int(checkpoint.name.rpartition("-")[2]) * trainer.args.world_size
    if not 0 <= state["last_epoch"] <= max_step:
        return f"{file.name} says step {state['last_epoch']}, expected at most {max_step}"
    base_rates = state.get("base_lrs", [])
    lr = trainer.args.learning_rate
    if not isinstance(base_rates, list) or any(rate != lr for rate in base_rates):
        return f"{file.name} says learning rates {base_rates}, expected {lr}"
    return ""


def _find_optimizer_mismatch(checkpoint: Path, trainer: Any) -> str:
    """Check that the state of the optimizer has the shapes of the trained weights."""
    file = checkpoint / OPTIMIZER_NAME
    if trainer.is_deepspeed_enabled:
        return ""
    state = _load_tensors(file)
    entries = state.get("state") if isinstance(state, dict) else None
    if not isinstance(entries, dict) or not all(map(_is_dict, entries.values())):
        return f"{file.name} is not the state of an optimizer"
    trained_shapes = Counter(
        tuple(parameter.shape)
        for parameter in trainer.model.parameters()
        if parameter.requires_grad
    )
    for name in _PARAMETER_SHAPED:
        tensors = filter(torch.is_tensor, (entry.get(name) for entry in entries.values()))
        if not Counter(tuple(tensor.shape) for tensor in tensors) <= trained_shapes:
            return f"{file.name} belongs to a model with other weights"
    return ""


def _is_dict(value: object) -> bool:
    return isinstance(value, dict)


def _load_tensors(file: Path) -> Any:
    """Load a file of torch without reading its tensors; None if it cannot be loaded."""
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # unpickling raises many classes
        reraise_memory_error(error)
        return None


@contextmanager
def resume_errors(checkpoint: object) -> Iterator[None]:
    """Turn an error while a checkpoint is loaded into a StoreError with the next step.

    Raises:
        StoreError: for any Exception inside the block, unless memory ran out.
    """
    try:
        yield
    except Exception as error:  # every file of the checkpoint may be foreign
        reraise_memory_error(error)
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise StoreError(
            f"the checkpoint {checkpoint} does not fit this run ({reason}). "
            "Move it away, and run again with `resume=True`."
        ) from error
