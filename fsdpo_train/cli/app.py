"""``fsdpo-train``: the training stages. Each command is a call of the package's public face."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping

import typer

import fsdpo_train
from fsdpo_data.cli.console import new_app, run_app
from fsdpo_data.cli.launch import TRAIN
from fsdpo_data.cli.options import command
from fsdpo_train.config import DpoConfig, PrmConfig, SftConfig

app = new_app("fsdpo-train", "Train on step-annotated data.")


SFT_EXAMPLES = """
Examples:

    fsdpo-train sft sft.jsonl --model Qwen/Qwen2-7B --out runs/sft --dtype bfloat16

    fsdpo-train sft sft.jsonl --model tiny --out runs/tiny --epochs 1

    torchrun --nproc-per-node 8 -m fsdpo_train sft sft.parquet
    --model ./base --out runs/sft --dtype bfloat16 --deepspeed zero3
"""


@command(app, SftConfig, examples=SFT_EXAMPLES, launch=TRAIN)
def sft(config: SftConfig) -> None:
    """Fine-tune."""
    report = fsdpo_train.train_sft(config)
    _tell(f"{report.out}: {report.rows} rows, {report.steps} steps, final loss {report.loss:.4f}")


PRM_EXAMPLES = """
Examples:

    fsdpo-train prm runs/demo --model tiny --out runs/prm --batch-size 32 --grad-accum 1
    --lr 1.5e-3 --adam-beta2 0.98 --epochs 3

    torchrun --nproc-per-node 8 -m fsdpo_train prm runs/qwen --model qwen2-7b-sft --out runs/prm
    --dtype bfloat16 --deepspeed zero3 --gradient-checkpointing --grad-accum 4
"""


@command(app, PrmConfig, examples=PRM_EXAMPLES, launch=TRAIN)
def prm(config: PrmConfig) -> None:
    """Train a process reward model."""
    report = fsdpo_train.train_prm(config)
    _tell(f"{report.out}: {report.steps} steps, final loss {report.loss:.4f}")
    _tell(f"held out: {_numbers(report.held_out) or 'nothing'}")


DPO_EXAMPLES = """
Examples:

    fsdpo-train dpo runs/pairs --model tiny --out runs/full-step --lr 1e-4 --beta 1

    fsdpo-train dpo org/pairs --model tiny --out runs/dpo --loss dpo
    --lr 1e-4 --beta 1 --reference-cache runs/reference

    torchrun --nproc-per-node 8 -m fsdpo_train dpo runs/pairs --model qwen2-7b-sft
    --out runs/full-step --batch-size 1 --dtype bfloat16 --deepspeed zero3 --gradient-checkpointing
"""


@command(app, DpoConfig, examples=DPO_EXAMPLES, launch=TRAIN)
def dpo(config: DpoConfig) -> None:
    """Train a policy on preference pairs."""
    report = fsdpo_train.train_dpo(config)
    _tell(f"{report.out}: {report.steps} steps, final loss {report.loss:.4f}")
    _tell(f"over the last steps: {_numbers(report.metrics)}")


def _numbers(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in values.items())


def _tell(line: str) -> None:
    """Print a line; one process of a distributed run does."""
    from fsdpo_train.trainer.directory import is_main_process

    if is_main_process():
        typer.echo(line)


def main() -> None:
    """Run ``fsdpo-train``; what the stages have to say before they end is shown."""
    said = logging.getLogger(fsdpo_train.__name__)
    said.setLevel(logging.INFO)
    said.addHandler(logging.StreamHandler(sys.stdout))
    run_app(app)
