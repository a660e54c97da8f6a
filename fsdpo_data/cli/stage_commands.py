"""The commands of ``fsdpo-data`` that make a sealed dataset from a sealed dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsdpo_data.cli.choices import Device, Dtype, PairStyle, PrmEngine
from fsdpo_data.cli.options import (
    ACTORS_HELP,
    ENGINE_HELP,
    SAMPLER,
    SOURCE,
    Out,
    Resume,
    Source,
    command_of,
    option,
)
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.progress import progress
from fsdpo_data.stages.label import LabelOptions
from fsdpo_data.stages.pair import PairOptions

if TYPE_CHECKING:
    from fsdpo_data.dataset.derive import Stage
    from fsdpo_data.dataset.manifest import Manifest

#: How solutions are continued, for labels and for pairs of steps.
_CONTINUE = {
    "model": option(str | None, "Who continues.  [default: the model that sampled]"),
    "temperature": option(float | None, "[default: as the solutions were sampled]"),
    "top_p": option(float | None, "[default: as the solutions were sampled]"),
    "max_tokens": option(int | None, "Tokens per continuation.  [default: as for solutions]"),
    **SAMPLER,
}

_PAIR_EXAMPLES = """
**Examples**

- `fsdpo-data pair runs/scored --out runs/pairs` — 4 best correct × 4 worst incorrect, mean reward
- `fsdpo-data pair runs/scored --out runs/pairs --no-require-outcome --top 2 --min-margin 0.1`
- `fsdpo-data pair runs/scored --out runs/steps --style step-dpo` — the first step below 0.5 against
  a step of a continuation that ends correct
"""


_PAIR = {
    **SOURCE,
    "style": option(PairStyle, "`full`: whole solutions. `step-dpo`: the first error."),
    "top": option(int, "full: solutions on each side (the paper's T)."),
    "aggregate": option(str, "full: step rewards to one: `mean`, `min`, `prod` or `last`."),
    "require_outcome": option(
        bool, "full: best correct against worst incorrect; else best against worst."
    ),
    "max_pairs": option(
        int | None, "Pairs per problem: the widest margins, or the lowest rewards, first."
    ),
    "min_margin": option(float | None, "full: reward of the chosen less that of the rejected."),
    "threshold": option(float, "step-dpo: a step with a lower reward is an error."),
    "resamples": option(int, "step-dpo: continuations of what comes before an error."),
    **_CONTINUE,
}


@command_of(PairOptions, _PAIR)
def pair(options: PairOptions) -> None:
    """Join solutions, or single steps, to preference pairs by their rewards.

    With `--style step-dpo` the steps before the first error of an incorrect solution are continued
    anew, and the error meets the step of a continuation that ends correct. Those options of
    sampling that follow `--resamples` belong to it.
    """
    stage = _step_pairs(options) if options.style == PairStyle.step_dpo else _full_pairs(options)
    run_stages(options.directory, options.out, [stage], resume=options.resume)


def _full_pairs(options: PairOptions) -> Stage:
    from fsdpo_data.pairs.best_worst import PairSpec
    from fsdpo_data.stages.pair import PairStage

    _refuse_changed(options, ("threshold", "resamples"), "step-dpo")
    return PairStage(
        PairSpec(
            top=options.top,
            aggregate=options.aggregate,
            require_outcome=options.require_outcome,
            max_pairs=options.max_pairs,
            min_margin=options.min_margin,
        )
    )


def _step_pairs(options: PairOptions) -> Stage:
    from fsdpo_data.pairs.first_error import StepPairSpec
    from fsdpo_data.stages.continuer import make_continuer
    from fsdpo_data.stages.pair_steps import StepPairStage

    _refuse_changed(options, ("top", "aggregate", "require_outcome", "min_margin"), "full")
    spec = StepPairSpec(options.threshold, options.max_pairs)
    continuer = make_continuer(options, options.resamples)
    return StepPairStage(spec, continuer, workers=options.workers)


def _refuse_changed(options: PairOptions, names: Sequence[str], style: str) -> None:
    """Refuse options of the other style."""
    defaults = {each.name: each.default for each in fields(PairOptions)}
    if any(getattr(options, name) != defaults[name] for name in names):
        flags = [f"--{name.replace('_', '-')}" for name in names]
        raise InputError(f"{', '.join(flags[:-1])} and {flags[-1]} belong to --style {style}.")


_LABEL_EXAMPLES = """
**Examples**

- `fsdpo-data label runs/demo --rollouts 8 --out runs/labelled`
- `fsdpo-data label runs/qwen --model ./qwen-sft --rollouts 8 --out runs/mc --engine vllm`
- `fsdpo-data label runs/demo --rollouts 4 --engine scripted`
  `--replay runs/labelled/rollouts/completions.jsonl --out runs/four`
"""


_LABEL = {
    **SOURCE,
    "rollouts": option(int, "Continuations per step (the paper's N > 1)."),
    **_CONTINUE,
}


@command_of(LabelOptions, _LABEL)
def label(options: LabelOptions) -> None:
    """Label steps by Monte Carlo: continue from each of them and count the right answers.

    The outcome labels (N=1) are there already and cost nothing; this takes N continuations of
    every step of every solution, and says what they cost.
    """
    from fsdpo_data.stages.continuer import make_continuer
    from fsdpo_data.stages.label import LabelStage, check_rollouts, cost_line

    continuer = make_continuer(options, check_rollouts(options.rollouts))
    stage = LabelStage(continuer, workers=options.workers)
    labelled = derive_shown(options.directory, options.out, [stage], resume=options.resume)
    print(f"\n{cost_line(labelled['rollouts'])}")
    print(f"next: fsdpo-train prm {options.out} --labels rollouts --out NEW")


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
    engine: Annotated[PrmEngine, typer.Option(help=ENGINE_HELP)] = PrmEngine.auto,
    actors: Annotated[int | None, typer.Option(help=ACTORS_HELP)] = None,
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
    from fsdpo_data.engines.options import ScorerOptions
    from fsdpo_data.stages.score import make_score_stage

    options = ScorerOptions(
        engine=engine.value,
        device=device.value,
        dtype=dtype.value,
        batch_tokens=batch_tokens,
        actors=actors,
    )
    run_stages(directory, out, [make_score_stage(prm, options)], resume=resume)


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
    from fsdpo_data.answers.grader import get_grader
    from fsdpo_data.cli.summary import print_changes
    from fsdpo_data.stages.grade import GradeStage

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
    from fsdpo_data.cli.summary import print_summary
    from fsdpo_data.dataset.derive import derive

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
