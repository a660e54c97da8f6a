"""The commands of ``fsdpo-data`` that make a sealed dataset from a sealed dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsdpo_data.choices import Device, Dtype, Engine, PairStyle, PrmEngine
from fsdpo_data.console import progress
from fsdpo_data.errors import InputError

if TYPE_CHECKING:
    from fsdpo_data.derive import Stage
    from fsdpo_data.manifest import Manifest

Source = Annotated[Path, typer.Argument(help="A sealed dataset; it is left as it is.")]
Out = Annotated[Path, typer.Option(help="Directory of the new dataset.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")]
# How solutions are continued, for labels and for pairs of steps.
Continues = Annotated[
    str | None, typer.Option(help="Who continues.  [default: the model that sampled]")
]
Temperature = Annotated[float | None, typer.Option(help="[default: as the solutions were sampled]")]
TopP = Annotated[float | None, typer.Option(help="[default: as the solutions were sampled]")]
MaxTokens = Annotated[
    int | None, typer.Option(help="Tokens per continuation.  [default: as for solutions]")
]
EngineChoice = Annotated[
    Engine, typer.Option(help="`auto` takes vLLM where it can run, else transformers.")
]
Replay = Annotated[
    Path | None, typer.Option(help="Recorded continuations for `--engine scripted`.")
]
DeviceChoice = Annotated[Device, typer.Option(help="For `--engine transformers`.")]
DtypeChoice = Annotated[Dtype, typer.Option(help="Precision; `auto` is the checkpoint's.")]
EngineArg = Annotated[
    list[str] | None,
    typer.Option(help="KEY=JSON passed on to `vllm.LLM`; may be given several times."),
]
Batch = Annotated[
    int | None, typer.Option(min=1, help="Beginnings per durable batch.  [default: by engine]")
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes that grade.  [default: the cores at hand]")
]
Seed = Annotated[int, typer.Option(help="Continuation i depends on seed, beginning, i.")]

_PAIR_EXAMPLES = """
**Examples**

- `fsdpo-data pair runs/scored --out runs/pairs` — 4 best correct × 4 worst incorrect, mean reward
- `fsdpo-data pair runs/scored --out runs/pairs --no-require-outcome --top 2 --min-margin 0.1`
- `fsdpo-data pair runs/scored --out runs/steps --style step-dpo` — the first step below 0.5 against
  a step of a continuation that ends correct
"""


def pair(
    directory: Source,
    out: Out,
    style: Annotated[
        PairStyle, typer.Option(help="`full`: whole solutions. `step-dpo`: the first error.")
    ] = PairStyle.full,
    top: Annotated[int, typer.Option(help="full: solutions on each side (the paper's T).")] = 4,
    aggregate: Annotated[
        str, typer.Option(help="full: step rewards to one: `mean`, `min`, `prod` or `last`.")
    ] = "mean",
    require_outcome: Annotated[
        bool,
        typer.Option(help="full: best correct against worst incorrect; else best against worst."),
    ] = True,
    max_pairs: Annotated[
        int | None,
        typer.Option(help="Pairs per problem: the widest margins, or the lowest rewards, first."),
    ] = None,
    min_margin: Annotated[
        float | None, typer.Option(help="full: reward of the chosen less that of the rejected.")
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="step-dpo: a step with a lower reward is an error.")
    ] = 0.5,
    resamples: Annotated[
        int, typer.Option(help="step-dpo: continuations of what comes before an error.")
    ] = 8,
    model: Continues = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    max_tokens: MaxTokens = None,
    engine: EngineChoice = Engine.auto,
    replay: Replay = None,
    device: DeviceChoice = Device.auto,
    dtype: DtypeChoice = Dtype.auto,
    engine_arg: EngineArg = None,
    batch: Batch = None,
    workers: Workers = None,
    seed: Seed = 2,
    resume: Resume = False,
) -> None:
    """Join solutions, or single steps, to preference pairs by their rewards.

    With `--style step-dpo` the steps before the first error of an incorrect solution are continued
    anew, and the error meets the step of a continuation that ends correct. Those options of
    sampling that follow `--resamples` belong to it.
    """
    from fsdpo_data.pair import PairSpec, PairStage
    from fsdpo_data.step_pairs import StepPairSpec, StepPairStage

    full = PairSpec(top, aggregate, require_outcome, max_pairs, min_margin)
    steps = StepPairSpec(threshold, max_pairs)
    if style is PairStyle.full:
        if (steps, resamples) != (StepPairSpec(max_pairs=max_pairs), 8):
            raise InputError("--threshold and --resamples belong to --style step-dpo.")
        run_stages(directory, out, [PairStage(full)], resume=resume)
        return
    if full != PairSpec(max_pairs=max_pairs):
        raise InputError(
            "--top, --aggregate, --no-require-outcome and --min-margin belong to --style full."
        )
    from fsdpo_data.continue_jobs import ContinueOptions, make_continuer
    from fsdpo_data.jobs import engine_arguments

    continuer = make_continuer(
        ContinueOptions(
            source=directory,
            n=resamples,
            model=model,
            temperature=temperature,
            top_p=top_p,
            max_tokens=max_tokens,
            engine=engine.value,
            replay=replay,
            device=device.value,
            dtype=dtype.value,
            engine_args=engine_arguments(engine_arg),
            batch=batch,
            seed=seed,
        )
    )
    run_stages(directory, out, [StepPairStage(steps, continuer, workers=workers)], resume=resume)


_LABEL_EXAMPLES = """
**Examples**

- `fsdpo-data label runs/demo --rollouts 8 --out runs/labelled`
- `fsdpo-data label runs/qwen --model ./qwen-sft --rollouts 8 --out runs/mc --engine vllm`
- `fsdpo-data label runs/demo --rollouts 4 --engine scripted`
  `--replay runs/labelled/rollouts/completions.jsonl --out runs/four`
"""


def label(
    directory: Source,
    rollouts: Annotated[int, typer.Option(help="Continuations per step (the paper's N > 1).")],
    out: Out,
    model: Continues = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    max_tokens: MaxTokens = None,
    engine: EngineChoice = Engine.auto,
    replay: Replay = None,
    device: DeviceChoice = Device.auto,
    dtype: DtypeChoice = Dtype.auto,
    engine_arg: EngineArg = None,
    batch: Batch = None,
    workers: Workers = None,
    seed: Seed = 1,
    resume: Resume = False,
) -> None:
    """Label steps by Monte Carlo: continue from each of them and count the right answers.

    The outcome labels (N=1) are there already and cost nothing; this takes N continuations of
    every step of every solution, and says what they cost.
    """
    from fsdpo_data.continue_jobs import ContinueOptions, make_continuer
    from fsdpo_data.jobs import engine_arguments
    from fsdpo_data.rollouts import LabelStage, check_rollouts, cost_line

    continuer = make_continuer(
        ContinueOptions(
            source=directory,
            n=check_rollouts(rollouts),
            model=model,
            temperature=temperature,
            top_p=top_p,
            max_tokens=max_tokens,
            engine=engine.value,
            replay=replay,
            device=device.value,
            dtype=dtype.value,
            engine_args=engine_arguments(engine_arg),
            batch=batch,
            seed=seed,
        )
    )
    stage = LabelStage(continuer, workers=workers)
    labelled = derive_shown(directory, out, [stage], resume=resume)
    print(f"\n{cost_line(labelled['rollouts'])}")
    print(f"next: fsdpo-train prm --data {out} --labels rollouts --out NEW")


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


_GRADE_EXAMPLES = """
**Examples**

- `fsdpo-data grade runs/a --out runs/a-regraded` — with the grader of this release
- `fsdpo-data grade runs/a --out runs/tolerant --grader math@1+tolerance=0.01`
"""


def grade(
    directory: Source,
    out: Out,
    grader: Annotated[
        str | None, typer.Option(help="Full name of a grader.  [default: the release's]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes.  [default: the cores at hand]")
    ] = None,
    resume: Resume = False,
) -> None:
    """Grade the solutions of a dataset again, without sampling, and say what changed.

    Labels follow the new outcomes. Pairs rest on the old ones and are left out.
    """
    from fsdpo_data.annotate import get_grader
    from fsdpo_data.regrade import GradeStage
    from fsdpo_data.summary import print_changes

    stage = GradeStage(get_grader(grader).version, workers)
    manifest = derive_shown(directory, out, [stage], resume=resume)
    print_changes(manifest["regraded"])
    print(f"\nnext: fsdpo-data inspect {out}")


def run_stages(source: Path, out: Path, stages: Sequence[Stage], *, resume: bool) -> None:
    """Derive a dataset, show what came out and what to do next."""
    derive_shown(source, out, stages, resume=resume)
    print(f"\nnext: fsdpo-data inspect {out}")


def derive_shown(source: Path, out: Path, stages: Sequence[Stage], *, resume: bool) -> Manifest:
    """Derive a dataset and show what came out; return its manifest."""
    from fsdpo_data.derive import derive
    from fsdpo_data.summary import print_summary

    with progress() as shown:
        manifest = derive(source, out, stages, resume=resume, progress=shown)
    print_summary(manifest, f"sealed {out}")
    return manifest


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(epilog=_LABEL_EXAMPLES)(label)
    app.command(epilog=_SCORE_EXAMPLES)(score)
    app.command(epilog=_GRADE_EXAMPLES)(grade)
    app.command(epilog=_PAIR_EXAMPLES)(pair)
