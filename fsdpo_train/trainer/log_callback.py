"""Log lines about the steps of a training, in place of the output of transformers."""

import logging
import time
from collections.abc import Mapping
from typing import Any

from transformers import PrinterCallback, Trainer, TrainerCallback

from fsdpo_data.core.progress import time_left

log = logging.getLogger(__name__)


class LogCallback(TrainerCallback):  # type: ignore[misc]
    """Callback that logs the metrics of a step, and the time left."""

    def __init__(self) -> None:
        self._start_time = time.monotonic()
        self._start_step = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **options: Any) -> None:
        """Remember the time and the step; a resumed run does not start at step 0."""
        self._start_time = time.monotonic()
        self._start_step = state.global_step

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Log metrics as one line."""
        if not state.is_world_process_zero:
            return
        values = [
            f"{name} {value:.4g}"
            for name, value in (logs or {}).items()
            if isinstance(value, int | float) and name not in ("total_flos", "epoch")
        ]
        seconds = time.monotonic() - self._start_time
        finished_steps = state.global_step - self._start_step
        remaining = time_left(seconds, finished_steps, state.max_steps - self._start_step)
        if remaining and state.global_step < state.max_steps:
            values.append(remaining)
        log.info(f"step {state.global_step} of {state.max_steps}: {', '.join(values)}")


def log_instead_of_printing(trainer: Trainer) -> None:
    """Replace the callback of a trainer that prints metrics by a :class:`LogCallback`."""
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(LogCallback())
