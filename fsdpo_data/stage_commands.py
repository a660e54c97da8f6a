"""The commands of ``fsdpo-data`` that make a sealed dataset from a sealed dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsdpo_data.choices import Device, Dtype, PrmEngine
from fsdpo_data.console import progress

if TYPE_CHECKING:
    from fsdpo_data.derive import Stage

Source = Annotated[Path, typer.Argument(help="A sealed dataset; it is left as it is.")]
Out = Annotated[Path, typer.Option(help="Directory of the new dataset.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")]
Aggregate = Annotated[
    str, typer.Option(help="Step rewards to one: `mean`, `min`, `prod` or `last`.")
]

_PAIR_EXAMPLES = """
**Examples**

- `fsdpo-data pair runs/scored --out runs/pairs` — 4 best correct × 4 worst incorrect, mean reward
- `fsdpo-data pair runs/scored --out runs/pairs --no-require-outcome --top 2 --min-margin 0.1`
"""


def pair(
    directory: Source,
    out: Out,
    top: Annotated[int, typer.Option(help="Solutions on each side (the paper's T).")] = 4,
    aggregate: Aggregate = "mean",
    require_outcome: Annotated[
        bool,
        typer.Option(help="Best correct against worst incorrect; else best against worst."),
    ] = True,
    max_pairs: Annotated[
        int | None, typer.Option(help="Pairs per problem at most, the widest margins first.")
    ] = None,
    min_margin: Annotated[
        float | None, typer.Option(help="Reward of the chosen less that of the rejected.")
    ] = None,
    resume: Resume = False,
) -> None:
    """Join the best and the worst scored solutions of each problem to preference pairs."""
    from fsdpo_data.pair import PairSpec, PairStage

    spec = PairSpec(
        top=top,
        aggregate=aggregate,
        require_outcome=require_outcome,
        max_pairs=max_pairs,
        min_margin=min_margin,
    )
    run_stages(directory, out, [PairStage(spec)], resume=resume)


_SCORE_EXAMPLES = """
**Examples**

- `fsdpo-data score runs/demo --prm runs/prm --out runs/scored`
- `fsdpo-data score runs/qwen --prm org/prm --out runs/scored --engine vllm --dtype bfloat16`
"""


def score(
    directory: Source,
    prm: Annotated[
        str, typer.Option(help="Process reward model: a directory or `org/name[@revision]`.")
    ],
    out: Out,
    engine: Annotated[
        PrmEngine, typer.Option(help="`auto` takes vLLM where it can run, else transformers.")
    ] = PrmEngine.auto,
    device: Annotated[Device, typer.Option(help="For `--engine transformers`.")] = Device.auto,
    dtype: Annotated[Dtype, typer.Option(help="Precision; `auto` is the checkpoint's.")] = (
        Dtype.auto
    ),
    batch_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens of a batch, padding included (transformers).")
    ] = 16_384,
    resume: Resume = False,
) -> None:
    """Give every step of every solution a reward in [0, 1]."""
    from fsdpo_data.score_jobs import ScoreOptions, make_score_stage

    options = ScoreOptions(prm, engine.value, device.value, dtype.value, batch_tokens)
    run_stages(directory, out, [make_score_stage(options)], resume=resume)


def run_stages(source: Path, out: Path, stages: Sequence[Stage], *, resume: bool) -> None:
    """Derive a dataset and show what came out."""
    from fsdpo_data.derive import derive
    from fsdpo_data.summary import print_summary

    with progress() as shown:
        manifest = derive(source, out, stages, resume=resume, progress=shown)
    print_summary(manifest, f"sealed {out}")
    print(f"\nnext: fsdpo-data inspect {out}")


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(epilog=_SCORE_EXAMPLES)(score)
    app.command(epilog=_PAIR_EXAMPLES)(pair)
