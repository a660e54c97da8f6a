"""The commands of ``fsdpo-data`` that make datasets: from problems, and from one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from fsdpo_data import api
from fsdpo_data.cli.launch import DATA
from fsdpo_data.cli.options import command
from fsdpo_data.cli.show import print_changes, print_summary
from fsdpo_data.core.progress import progress
from fsdpo_data.stages.decontaminate import DecontaminateOptions, run_decontaminate
from fsdpo_data.stages.grade import GradeOptions
from fsdpo_data.stages.label import LabelOptions, cost_line
from fsdpo_data.stages.merge import MergeOptions, ShardedOptions, run_shard
from fsdpo_data.stages.options import StageOptions
from fsdpo_data.stages.pair import PairOptions
from fsdpo_data.stages.pipeline import BuildOptions
from fsdpo_data.stages.score import ScoreOptions

if TYPE_CHECKING:
    from fsdpo_data.stages.decontaminate import Contamination

_BUILD = """
**Examples**

- `fsdpo-data build` — the embedded model on embedded problems, offline
- `fsdpo-data build --model qwen2-7b-sft --problems gsm8k --problems math --samples 32`
- `fsdpo-data build --model ./my-sft --template alpaca --problems train.jsonl --limit 200`
- `fsdpo-data build --prm runs/prm --out runs/pairs` — through to sealed preference pairs
- `RAY_ADDRESS=head:6379 fsdpo-data build --model qwen2-7b-sft --engine ray` — on every GPU there
- `fsdpo-data build --engine scripted --replay runs/a/completions.jsonl --out runs/b`
"""

_LABEL = """
**Examples**

- `fsdpo-data label runs/demo --rollouts 8 --out runs/labelled`
- `fsdpo-data label runs/qwen --model ./qwen-sft --rollouts 8 --out runs/mc --engine vllm`
- `fsdpo-data label runs/demo --rollouts 4 --engine scripted`
  `--replay runs/labelled/rollouts/completions.jsonl --out runs/four`
"""

_SCORE = """
**Examples**

- `fsdpo-data score runs/demo --prm runs/prm --out runs/scored`
- `fsdpo-data score runs/qwen --prm org/prm --out runs/scored --engine vllm --dtype bfloat16`
"""

_GRADE = """
**Examples**

- `fsdpo-data grade runs/a --out runs/a-regraded` — with the grader of this release
- `fsdpo-data grade runs/a --out runs/tolerant --grader math@1+tolerance=0.01`
"""

_PAIR = """
**Examples**

- `fsdpo-data pair runs/scored --out runs/pairs` — 4 best correct × 4 worst incorrect, mean reward
- `fsdpo-data pair runs/scored --out runs/pairs --no-require-outcome --top 2 --min-margin 0.1`
- `fsdpo-data pair runs/scored --out runs/steps --style step-dpo` — the first step below 0.5 against
  a step of a continuation that ends correct
"""

_MERGE = """
**Example** `fsdpo-data merge runs/demo-shards/* --out runs/demo`
"""

_DECONTAMINATE = """
**Examples**

- `fsdpo-data decontaminate gsm8k math --against bench/gsm8k.jsonl --against bench/math`
- `fsdpo-data decontaminate train.jsonl --against bench --report r.json --drop clean.jsonl`
- `fsdpo-data decontaminate runs/pairs --against gsm8k=bench/gsm8k.jsonl --out runs/checked`
"""


def build(options: BuildOptions) -> None:
    """Build, and say what came out."""
    if options.shard:
        return _shard(options)
    with progress() as shown:
        data = api.build_dataset(options, shown)
    _next(_sealed(data))


def label(options: LabelOptions) -> None:
    """Label, and say what the labels cost."""
    if options.shard:
        return _shard(options)
    data = _run(options)
    if data.manifest.rollouts:
        typer.echo(f"\n{cost_line(data.manifest.rollouts)}")
    typer.echo(f"next: fsdpo-train prm {data.path} --labels rollouts --out NEW")


def score(options: ScoreOptions) -> None:
    """Score, or do one job's part of it."""
    return _shard(options) if options.shard else derived(options)


def merge(options: MergeOptions) -> None:
    """Merge, and say what came out."""
    with progress() as shown:
        data = api.merge_shards(options, shown)
    _next(_sealed(data))


def _shard(options: ShardedOptions) -> None:
    """Do one job's part, and say what comes when all are done."""
    with progress() as shown:
        out = run_shard(options, shown)
    typer.echo(f"{out} holds shard {options.shard}")
    typer.echo(f"next, when all are there: fsdpo-data merge {out} … --out NEW")


def grade(options: GradeOptions) -> None:
    """Grade, and say what changed."""
    data = _run(options)
    if data.manifest.regraded:
        print_changes(data.manifest.regraded)
    _next(data)


def derived(options: StageOptions) -> None:
    """Run a stage of which there is nothing more to say than what came out."""
    _next(_run(options))


def _run(options: StageOptions) -> api.Dataset:
    with progress() as shown:
        return _sealed(api.run_stage(options, shown))


def _sealed(data: api.Dataset) -> api.Dataset:
    print_summary(data.manifest, f"sealed {data.path}")
    return data


def _next(data: api.Dataset) -> None:
    typer.echo(f"\nnext: fsdpo-data inspect {data.path}")


def decontaminate(options: DecontaminateOptions) -> None:
    """Hold problems against benchmarks, and say what was found."""
    with progress() as shown:
        found = run_decontaminate(options, shown)
    _print_overlaps(found)
    if options.drop:
        typer.echo(f"next: fsdpo-data build --problems {options.drop}")
    if options.out:
        typer.echo(f"sealed {options.out}; next: fsdpo-data push {options.out} ORG/NAME")


def _print_overlaps(found: Contamination) -> None:
    """Print a line for each benchmark, and the sum."""
    for counts in found.counts():
        typer.echo(
            f"{counts['name']}: {counts['hit']:,} of {counts['questions']:,} questions overlap "
            f"with {counts['problems']:,} problems; {counts['same']:,} are the same, "
            f"{counts['same_answer']:,} with the same answer"
        )
    total, clean = len(found.problems), len(found.clean)
    typer.echo(f"{total - clean:,} of {total:,} problems are contaminated, {clean:,} are clean")


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    command(app, BuildOptions, examples=_BUILD, panel="Make", launch=DATA)(build)
    command(app, LabelOptions, examples=_LABEL, panel="Make", launch=DATA)(label)
    command(app, ScoreOptions, examples=_SCORE, panel="Make", launch=DATA)(score)
    command(app, GradeOptions, examples=_GRADE, panel="Make")(grade)
    command(app, PairOptions, name="pair", examples=_PAIR, panel="Make")(derived)
    command(app, MergeOptions, examples=_MERGE, panel="Make")(merge)
    command(app, DecontaminateOptions, examples=_DECONTAMINATE, panel="Make")(decontaminate)
