"""``fsdpo-train``: the training stages."""

from __future__ import annotations

from pathlib import Path

import typer

from fsdpo_data.cli.console import run_app
from fsdpo_data.cli.options import option
from fsdpo_train.cli.options import LORA, OUT, stage
from fsdpo_train.config import DpoConfig, PrmConfig, SftConfig

app = typer.Typer(
    name="fsdpo-train",
    help="Train on step-annotated data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback()
def _stages() -> None:
    """Train on step-annotated data: one command per stage."""


SFT_OPTIONS = {
    "data": option(Path, "JSONL or parquet with columns prompt, completion."),
    "out": OUT,
    "model": option(
        str | None,
        "Checkpoint to start from: a short name, `org/name[@revision]` or a directory.",
    ),
    "from_config": option(Path | None, "Start from random weights: config.json, or its directory."),
}
SFT_EXAMPLES = """
Examples:

    fsdpo-train sft --data sft.jsonl --model Qwen/Qwen2-7B --out runs/sft --bf16

    fsdpo-train sft --data sft.jsonl --model tiny --out runs/tiny --epochs 1

    torchrun --nproc-per-node 8 -m fsdpo_train sft --data sft.parquet
    --model ./base --out runs/sft --bf16 --deepspeed zero3
"""


@app.command(epilog=SFT_EXAMPLES)
@stage(SftConfig, SFT_OPTIONS)
def sft(config: SftConfig) -> None:
    """Fine-tune on prompt/completion rows; the loss covers the completion and its end."""
    from fsdpo_train.sft.train import train_sft
    from fsdpo_train.trainer.loop import is_main_process

    report = train_sft(config)
    if not is_main_process():
        return
    print(f"{report.out}: {report.rows} rows, {report.steps} steps, final loss {report.loss:.4f}")


PRM_OPTIONS = {
    "data": option(
        Path, "A sealed dataset, or JSONL or parquet with columns prompt, completions, labels."
    ),
    "out": OUT,
    "model": option(
        str, "Policy to put the head on: a short name, `org/name[@revision]` or a directory."
    ),
    "labels": option(str, "`outcome` (N=1), `rollouts` (N>1), `auto`: rollouts if there are."),
    "reduce": option(str, "Over a solution's readouts: `sum` (the paper's), `mean`."),
    "readouts": option(str, "Labels are learnt at each `step`'s end, or at every `token` of it."),
    "samples": option(int, "Solutions of each problem; 0: all."),
    "balance": option(bool, "Right and wrong steps weigh the same in total.", "--balance"),
    "only_mixed": option(bool, "Only problems with right and wrong solutions.", "--only-mixed"),
    "held_out": option(float, "Share of the problems to measure on."),
    "eval_every": option(int, "Steps between measurements; 0: at the end."),
    "lora": LORA,
}
PRM_EXAMPLES = """
Examples:

    fsdpo-train prm --data runs/demo --model tiny --out runs/prm --batch-size 32 --grad-accum 1
    --lr 1.5e-3 --adam-beta2 0.98 --epochs 3

    torchrun --nproc-per-node 8 -m fsdpo_train prm --data runs/qwen --model qwen2-7b-sft
    --out runs/prm --bf16 --deepspeed zero3 --gradient-checkpointing --grad-accum 4

The defaults are the paper's: one epoch, 256 solutions per step on one device, learning rate 5e-7.
"""


@app.command(epilog=PRM_EXAMPLES)
@stage(PrmConfig, PRM_OPTIONS)
def prm(config: PrmConfig) -> None:
    """Train a process reward model: a reward for each step, learnt from labelled solutions."""
    from fsdpo_train.prm.train import train_prm
    from fsdpo_train.trainer.loop import is_main_process

    report = train_prm(config)
    if not is_main_process():
        return
    measured = ", ".join(f"{name} {value:.4f}" for name, value in report.held_out.items())
    print(f"{report.out}: {report.steps} steps, final loss {report.loss:.4f}")
    print(f"held out: {measured or 'nothing'}")


DPO_OPTIONS = {
    "data": option(
        Path,
        "A sealed dataset with pairs, `org/name[@revision]` of one on the Hub, or JSONL or parquet "
        "with the columns of its pairs.",
    ),
    "out": OUT,
    "model": option(
        str,
        "Policy to start from, and the reference: a short name, `org/name[@revision]` or a "
        "directory.",
    ),
    "loss": option(str, "full-step (the paper's), full-step-scaled, dpo, step-dpo, release."),
    "beta": option(float, "Pull towards the reference."),
    "gamma": option(float, "Temperature of step rewards."),
    "shuffle": option(str, "`groups`: pairs of a prompt stay together; `pairs`: scattered."),
    "share_prompt": option(bool, "Compute a prompt once for all its solutions."),
    "reference_cache": option(
        Path | None, "Reference log-probabilities to share between runs; else in --out."
    ),
    "lora": LORA,
    "batch_size": option(int, "Prompts per device and pass; pairs with --shuffle pairs."),
}
DPO_EXAMPLES = """
Examples:

    fsdpo-train dpo --data runs/pairs --model tiny --out runs/full-step --lr 1e-4 --beta 1

    fsdpo-train dpo --data org/pairs --model tiny --out runs/dpo --loss dpo
    --lr 1e-4 --beta 1 --reference-cache runs/reference

    torchrun --nproc-per-node 8 -m fsdpo_train dpo --data runs/pairs --model qwen2-7b-sft
    --out runs/full-step --batch-size 1 --bf16 --deepspeed zero3 --gradient-checkpointing

The defaults are the paper's: one epoch, 4 prompts of 16 pairs per step on one device, learning
rate 5e-7, β 0.05, γ 0.5. Small models want a much higher learning rate.
"""


@app.command(epilog=DPO_EXAMPLES)
@stage(DpoConfig, DPO_OPTIONS)
def dpo(config: DpoConfig) -> None:
    """Train a policy on preference pairs: step-wise DPO, DPO and their relatives."""
    from fsdpo_train.preference.train import train_dpo

    report = train_dpo(config)
    measured = ", ".join(f"{name} {value:.4f}" for name, value in report.metrics.items())
    print(f"{report.out}: {report.steps} steps, final loss {report.loss:.4f}")
    print(f"over the last steps: {measured}")


def main() -> None:
    """Run ``fsdpo-train``."""
    run_app(app)
