"""``fsdpo-train``: the training stages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsdpo_data.console import run_app

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


# Options that every stage has; their values are checked by fsdpo_train.config.
Out = Annotated[Path, typer.Option(help="Directory of the trained model.")]
Epochs = Annotated[float, typer.Option(help="Passes over the data.")]
MaxSteps = Annotated[int, typer.Option(help="Stop after so many steps; 0: --epochs.")]
BatchSize = Annotated[int, typer.Option(help="Sequences per device and pass.")]
GradAccum = Annotated[int, typer.Option(help="Passes per optimizer step.")]
Lr = Annotated[float, typer.Option(help="Peak learning rate.")]
Schedule = Annotated[str, typer.Option(help="Learning-rate schedule.")]
Warmup = Annotated[float, typer.Option(help="Share of the steps (below 1) or number.")]
WeightDecay = Annotated[float, typer.Option(help="AdamW weight decay.")]
AdamBeta2 = Annotated[float, typer.Option(help="AdamW second-moment decay.")]
MaxGradNorm = Annotated[float, typer.Option(help="Gradient clipping.")]
MaxLength = Annotated[int, typer.Option(help="Tokens per row at most; 0: the model's context.")]
GroupByLength = Annotated[bool, typer.Option(help="Batch rows of like length.")]
Bf16 = Annotated[bool, typer.Option("--bf16", help="Compute in bfloat16.")]
Checkpointing = Annotated[
    bool, typer.Option("--gradient-checkpointing", help="Trade time for memory.")
]
Deepspeed = Annotated[str | None, typer.Option(help="`zero2`, `zero3` or a DeepSpeed config file.")]
ReportTo = Annotated[str, typer.Option(help="wandb, tensorboard, … or none.")]
LogEvery = Annotated[int, typer.Option(help="Steps between losses logged.")]
SaveEvery = Annotated[int, typer.Option(help="Steps between checkpoints; 0: none.")]
SaveLimit = Annotated[int, typer.Option(help="Checkpoints kept.")]
Seed = Annotated[int, typer.Option(help="Of weights, data order and dropout.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")]

SFT_EXAMPLES = """
Examples:

    fsdpo-train sft --data sft.jsonl --model Qwen/Qwen2-7B --out runs/sft --bf16

    fsdpo-train sft --data sft.jsonl --model tiny --out runs/tiny --epochs 1

    torchrun --nproc-per-node 8 -m fsdpo_train.cli sft --data sft.parquet
    --model ./base --out runs/sft --bf16 --deepspeed zero3
"""


@app.command(epilog=SFT_EXAMPLES)
def sft(
    data: Annotated[Path, typer.Option(help="JSONL or parquet with columns prompt, completion.")],
    out: Out,
    model: Annotated[
        str | None,
        typer.Option(
            help="Checkpoint to start from: a short name, `org/name[@revision]` or a directory."
        ),
    ] = None,
    from_config: Annotated[
        Path | None,
        typer.Option(help="Start from random weights: config.json, or its directory."),
    ] = None,
    epochs: Epochs = 3.0,
    max_steps: MaxSteps = 0,
    batch_size: BatchSize = 16,
    grad_accum: GradAccum = 1,
    lr: Lr = 1e-5,
    schedule: Schedule = "cosine",
    warmup: Warmup = 0.03,
    weight_decay: WeightDecay = 0.0,
    adam_beta2: AdamBeta2 = 0.999,
    max_grad_norm: MaxGradNorm = 1.0,
    max_length: MaxLength = 0,
    group_by_length: GroupByLength = True,
    bf16: Bf16 = False,
    gradient_checkpointing: Checkpointing = False,
    deepspeed: Deepspeed = None,
    report_to: ReportTo = "none",
    log_every: LogEvery = 10,
    save_every: SaveEvery = 500,
    save_limit: SaveLimit = 1,
    seed: Seed = 0,
    resume: Resume = False,
) -> None:
    """Fine-tune on prompt/completion rows; the loss covers the completion and its end."""
    options = dict(locals())  # every parameter is a field of SftConfig, which checks the values
    from fsdpo_train.config import SftConfig

    config = SftConfig(**options)
    from fsdpo_train.loop import is_main_process
    from fsdpo_train.sft import train_sft

    report = train_sft(config)
    if not is_main_process():
        return
    print(f"{report.out}: {report.rows} rows, {report.steps} steps, final loss {report.loss:.4f}")


PRM_EXAMPLES = """
Examples:

    fsdpo-train prm --data runs/demo --model tiny --out runs/prm --batch-size 64 --grad-accum 1
    --lr 1e-3

    torchrun --nproc-per-node 8 -m fsdpo_train.cli prm --data runs/qwen --model qwen2-7b-sft
    --out runs/prm --bf16 --deepspeed zero3 --gradient-checkpointing --grad-accum 4

The defaults are the paper's: one epoch, 256 solutions per step on one device, learning rate 5e-7.
"""


@app.command(epilog=PRM_EXAMPLES)
def prm(
    data: Annotated[
        Path,
        typer.Option(
            help="A sealed dataset, or JSONL or parquet with columns prompt, completions, labels."
        ),
    ],
    out: Out,
    model: Annotated[
        str,
        typer.Option(
            help="Policy to put the head on: a short name, `org/name[@revision]` or a directory."
        ),
    ] = "tiny",
    labels: Annotated[
        str, typer.Option(help="`outcome` (N=1), `rollouts` (N>1), `auto`: rollouts if there are.")
    ] = "auto",
    reduce: Annotated[str, typer.Option(help="Over the steps: `sum` (the paper's), `mean`.")] = (
        "sum"
    ),
    samples: Annotated[int, typer.Option(help="Solutions of each problem; 0: all.")] = 0,
    balance: Annotated[
        bool, typer.Option("--balance", help="Right and wrong steps weigh the same in total.")
    ] = False,
    only_mixed: Annotated[
        bool, typer.Option("--only-mixed", help="Only problems with right and wrong solutions.")
    ] = False,
    held_out: Annotated[float, typer.Option(help="Share of the problems to measure on.")] = 0.05,
    eval_every: Annotated[int, typer.Option(help="Steps between measurements; 0: at the end.")] = 0,
    lora: Annotated[int, typer.Option(help="Rank of LoRA adapters; 0 trains all weights.")] = 0,
    epochs: Epochs = 1.0,
    max_steps: MaxSteps = 0,
    batch_size: BatchSize = 8,
    grad_accum: GradAccum = 32,
    lr: Lr = 5e-7,
    schedule: Schedule = "linear",
    warmup: Warmup = 0.05,
    weight_decay: WeightDecay = 0.0,
    adam_beta2: AdamBeta2 = 0.999,
    max_grad_norm: MaxGradNorm = 1.0,
    max_length: MaxLength = 0,
    group_by_length: GroupByLength = True,
    bf16: Bf16 = False,
    gradient_checkpointing: Checkpointing = False,
    deepspeed: Deepspeed = None,
    report_to: ReportTo = "none",
    log_every: LogEvery = 10,
    save_every: SaveEvery = 500,
    save_limit: SaveLimit = 1,
    seed: Seed = 0,
    resume: Resume = False,
) -> None:
    """Train a process reward model: a reward for each step, learnt from labelled solutions."""
    options = dict(locals())  # every parameter is a field of PrmConfig, which checks the values
    from fsdpo_train.config import PrmConfig

    config = PrmConfig(**options)
    from fsdpo_train.loop import is_main_process
    from fsdpo_train.prm import train_prm

    report = train_prm(config)
    if not is_main_process():
        return
    measured = ", ".join(f"{name} {value:.4f}" for name, value in report.held_out.items())
    print(f"{report.out}: {report.steps} steps, final loss {report.loss:.4f}")
    print(f"held out: {measured or 'nothing'}")


DPO_EXAMPLES = """
Examples:

    fsdpo-train dpo --data runs/pairs --model tiny --out runs/full-step --lr 1e-5

    fsdpo-train dpo --data org/pairs --model tiny --out runs/dpo --loss dpo --lr 1e-5
    --reference-cache runs/reference

    torchrun --nproc-per-node 8 -m fsdpo_train.cli dpo --data runs/pairs --model qwen2-7b-sft
    --out runs/full-step --batch-size 1 --bf16 --deepspeed zero3 --gradient-checkpointing

The defaults are the paper's: one epoch, 4 prompts of 16 pairs per step on one device, learning
rate 5e-7, β 0.05, γ 0.5. Small models want a much higher learning rate.
"""


@app.command(epilog=DPO_EXAMPLES)
def dpo(
    data: Annotated[
        Path,
        typer.Option(
            help="A sealed dataset with pairs, `org/name[@revision]` of one on the Hub, or JSONL "
            "or parquet with the columns of its pairs."
        ),
    ],
    out: Out,
    model: Annotated[
        str,
        typer.Option(
            help="Policy to start from, and the reference: a short name, `org/name[@revision]` or "
            "a directory."
        ),
    ] = "tiny",
    loss: Annotated[
        str, typer.Option(help="full-step (the paper's), full-step-scaled, dpo, step-dpo, release.")
    ] = "full-step",
    beta: Annotated[float, typer.Option(help="Pull towards the reference.")] = 0.05,
    gamma: Annotated[float, typer.Option(help="Temperature of step rewards.")] = 0.5,
    shuffle: Annotated[
        str, typer.Option(help="`groups`: pairs of a prompt stay together; `pairs`: scattered.")
    ] = "groups",
    share_prompt: Annotated[
        bool, typer.Option(help="Compute a prompt once for all its solutions.")
    ] = True,
    reference_cache: Annotated[
        Path | None,
        typer.Option(help="Reference log-probabilities to share between runs; else in --out."),
    ] = None,
    lora: Annotated[int, typer.Option(help="Rank of LoRA adapters; 0 trains all weights.")] = 0,
    epochs: Epochs = 1.0,
    max_steps: MaxSteps = 0,
    batch_size: Annotated[
        int, typer.Option(help="Prompts per device and pass; pairs with --shuffle pairs.")
    ] = 4,
    grad_accum: GradAccum = 1,
    lr: Lr = 5e-7,
    schedule: Schedule = "linear",
    warmup: Warmup = 0.05,
    weight_decay: WeightDecay = 0.0,
    adam_beta2: AdamBeta2 = 0.999,
    max_grad_norm: MaxGradNorm = 1.0,
    max_length: MaxLength = 0,
    group_by_length: GroupByLength = True,
    bf16: Bf16 = False,
    gradient_checkpointing: Checkpointing = False,
    deepspeed: Deepspeed = None,
    report_to: ReportTo = "none",
    log_every: LogEvery = 10,
    save_every: SaveEvery = 500,
    save_limit: SaveLimit = 1,
    seed: Seed = 0,
    resume: Resume = False,
) -> None:
    """Train a policy on preference pairs: step-wise DPO, DPO and their relatives."""
    options = dict(locals())  # every parameter is a field of DpoConfig, which checks the values
    from fsdpo_train.config import DpoConfig

    config = DpoConfig(**options)
    from fsdpo_train.dpo import train_dpo

    report = train_dpo(config)
    measured = ", ".join(f"{name} {value:.4f}" for name, value in report.metrics.items())
    print(f"{report.out}: {report.steps} steps, final loss {report.loss:.4f}")
    print(f"over the last steps: {measured}")


def main() -> None:
    """Run ``fsdpo-train``."""
    run_app(app)


if __name__ == "__main__":
    main()
