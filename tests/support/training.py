"""Training runs: killed at a step, or started as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest


class Killed(Exception):
    """Ends a run between two optimizer steps, as a kill would."""


def kill_at_step(step: int, stage: ModuleType, run: Any) -> None:
    """Call ``run``, a training by the module ``stage``, and end it after ``step`` steps."""
    import transformers

    class Kill(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == step:
                raise Killed

    run_trainer = stage.run_trainer

    def run_until_killed(trainer: Any, *args: Any) -> None:
        trainer.add_callback(Kill)
        run_trainer(trainer, *args)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(stage, "run_trainer", run_until_killed)
        run()


def environment() -> dict[str, str]:
    """Return the environment of a training process on the CPU."""
    return {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}


def python(*arguments: str) -> str:
    """Run a Python process to its end, and return its output."""
    line = [sys.executable, *arguments]
    ran = subprocess.run(line, capture_output=True, text=True, env=environment(), timeout=900)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout
