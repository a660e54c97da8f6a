"""Command-line options of the stages: each is declared once, its default once in its config."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fsdpo_data.cli.options import Options, command_of, option
from fsdpo_train.config import TrainConfig

Config = TypeVar("Config", bound=TrainConfig)

#: Options that every stage has; their values are checked by :mod:`fsdpo_train.config`.
SHARED: Options = {
    "epochs": option(float, "Passes over the data."),
    "max_steps": option(int, "Stop after so many steps; 0: --epochs."),
    "batch_size": option(int, "Sequences per device and pass."),
    "grad_accum": option(int, "Passes per optimizer step."),
    "lr": option(float, "Peak learning rate."),
    "schedule": option(str, "Learning-rate schedule."),
    "warmup": option(float, "Share of the steps (below 1) or number."),
    "weight_decay": option(float, "AdamW weight decay."),
    "adam_beta2": option(float, "AdamW second-moment decay."),
    "max_grad_norm": option(float, "Gradient clipping."),
    "max_length": option(int, "Tokens per row at most; 0: the model's context."),
    "group_by_length": option(bool, "Batch rows of like length."),
    "bf16": option(bool, "Compute in bfloat16.", "--bf16"),
    "gradient_checkpointing": option(bool, "Trade time for memory.", "--gradient-checkpointing"),
    "deepspeed": option(str | None, "`zero2`, `zero3` or a DeepSpeed config file."),
    "report_to": option(str, "wandb, tensorboard, … or none."),
    "log_every": option(int, "Steps between losses logged."),
    "save_every": option(int, "Steps between checkpoints; 0: none."),
    "save_limit": option(int, "Checkpoints kept."),
    "seed": option(int, "Of weights, data order and dropout."),
    "resume": option(bool, "Continue the run in --out.", "--resume"),
}

#: Where the trained model goes.
OUT = option(Path, "Directory of the trained model.")

#: Options of the stages that start from a policy.
LORA = option(int, "Rank of LoRA adapters; 0 trains all weights.")


def stage(
    kind: type[Config], own: Options
) -> Callable[[Callable[[Config], None]], Callable[..., None]]:
    """Turn a function of a config into a command with an option for every field of the config.

    Args:
        kind: The config; its fields' defaults are those of the options.
        own: Options of this stage alone, shown before the shared ones. An option of a shared name
            replaces the shared one.
    """
    return command_of(
        kind, {**own, **{name: each for name, each in SHARED.items() if name not in own}}
    )
