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


SFT_EXAMPLES = """
Examples:

    fsdpo-train sft --data sft.jsonl --model Qwen/Qwen2-7B --out runs/sft --bf16

    fsdpo-train sft --data sft.jsonl --model tiny --out runs/tiny --epochs 1

    torchrun --nproc-per-node 8 -m fsdpo_train.cli sft --data sft.parquet
    --model ./base --out runs/sft --bf16 --deepspeed zero3.json
"""


@app.command(epilog=SFT_EXAMPLES)
def sft(
    data: Annotated[Path, typer.Option(help="JSONL or parquet with columns prompt, completion.")],
    out: Annotated[Path, typer.Option(help="Directory of the trained model.")],
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
    epochs: Annotated[float, typer.Option(help="Passes over the data.")] = 3.0,
    max_steps: Annotated[int, typer.Option(help="Stop after so many steps; 0: --epochs.")] = 0,
    batch_size: Annotated[int, typer.Option(help="Sequences per device and pass.")] = 16,
    grad_accum: Annotated[int, typer.Option(help="Passes per optimizer step.")] = 1,
    lr: Annotated[float, typer.Option(help="Peak learning rate.")] = 1e-5,
    schedule: Annotated[str, typer.Option(help="Learning-rate schedule.")] = "cosine",
    warmup: Annotated[float, typer.Option(help="Share of the steps (below 1) or number.")] = 0.03,
    weight_decay: Annotated[float, typer.Option(help="AdamW weight decay.")] = 0.0,
    adam_beta2: Annotated[float, typer.Option(help="AdamW second-moment decay.")] = 0.999,
    max_grad_norm: Annotated[float, typer.Option(help="Gradient clipping.")] = 1.0,
    max_length: Annotated[int, typer.Option(help="Tokens per row; longer rows are dropped.")] = 0,
    group_by_length: Annotated[bool, typer.Option(help="Batch rows of like length.")] = True,
    bf16: Annotated[bool, typer.Option("--bf16", help="Compute in bfloat16.")] = False,
    gradient_checkpointing: Annotated[
        bool, typer.Option("--gradient-checkpointing", help="Trade time for memory.")
    ] = False,
    deepspeed: Annotated[Path | None, typer.Option(help="DeepSpeed config file.")] = None,
    report_to: Annotated[str, typer.Option(help="wandb, tensorboard, … or none.")] = "none",
    log_every: Annotated[int, typer.Option(help="Steps between losses logged.")] = 10,
    save_every: Annotated[int, typer.Option(help="Steps between checkpoints; 0: none.")] = 500,
    save_limit: Annotated[int, typer.Option(help="Checkpoints kept.")] = 1,
    seed: Annotated[int, typer.Option(help="Of weights, data order and dropout.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
) -> None:
    """Fine-tune on prompt/completion rows; the loss covers the completion and its end."""
    options = dict(locals())  # every parameter is a field of SftConfig, which checks the values
    from fsdpo_train.config import SftConfig

    config = SftConfig(**options)
    from fsdpo_train.sft import train_sft

    report = train_sft(config)
    print(f"{report.out}: {report.rows} rows, {report.steps} steps, final loss {report.loss:.4f}")


def main() -> None:
    """Run ``fsdpo-train``."""
    run_app(app)


if __name__ == "__main__":
    main()
