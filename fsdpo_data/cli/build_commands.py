"""The commands of ``fsdpo-data`` that make datasets: from problems, and from one another."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import typer

from fsdpo_data import api
from fsdpo_data.cli.console import print_next_command
from fsdpo_data.cli.printing import print_changes, print_summary
from fsdpo_data.core.options import Options
from fsdpo_data.core.progress import Progress, progress
from fsdpo_data.dataset.stage import StageOptions
from fsdpo_data.stages.decontaminate import DecontaminateOptions, run_decontaminate
from fsdpo_data.stages.grade import GradeOptions
from fsdpo_data.stages.label import LabelOptions, format_rollout_cost
from fsdpo_data.stages.merge import MergeOptions, ShardedOptions, run_shard
from fsdpo_data.stages.merge import merge as bring_together
from fsdpo_data.stages.pair import PairOptions
from fsdpo_data.stages.pipeline import BuildOptions, run_build
from fsdpo_data.stages.score import ScoreOptions


def build(options: BuildOptions) -> None:
    """Build, and say what came out."""
    if options.shard:
        return _shard(options)
    next_step(run_with_progress(lambda shown: api.Dataset(*run_build(options, shown))))


def label(options: LabelOptions) -> None:
    """Label, and say what the labels cost."""
    if options.shard:
        return _shard(options)
    data = _run(options)
    if data.manifest.rollouts:
        typer.echo(f"\n{format_rollout_cost(data.manifest.rollouts)}")
    print_next_command("fsdpo-train", "prm", data.path, "--labels", "rollouts", "--out", "NEW")


def score(options: ScoreOptions) -> None:
    """Score, or do one job's part of it."""
    return _shard(options) if options.shard else next_step(_run(options))


def grade(options: GradeOptions) -> None:
    """Grade, and say what changed."""
    data = _run(options)
    if data.manifest.regraded:
        print_changes(data.manifest.regraded)
    next_step(data)


def pair(options: PairOptions) -> None:
    """Pair, and say what came out."""
    next_step(_run(options))


def merge(options: MergeOptions) -> None:
    """Merge, and say what came out."""
    next_step(run_with_progress(lambda shown: api.Dataset(*bring_together(options, shown))))


def _shard(options: ShardedOptions) -> None:
    """Do one job's part, and say what comes when all are done."""
    with progress() as shown:
        out = run_shard(options, shown)
    typer.echo(f"{out} holds shard {options.shard}")
    typer.echo(f"next, when all are there: fsdpo-data merge {out} … --out NEW")


def _run(options: StageOptions) -> api.Dataset:
    return run_with_progress(partial(api.run_stage, options))


def run_with_progress(make: Callable[[Progress], api.Dataset]) -> api.Dataset:
    """Make a dataset while progress is shown, and say what came out."""
    with progress() as shown:
        data = make(shown)
    print_summary(data.manifest, f"sealed {data.path}")
    return data


def next_step(data: api.Dataset) -> None:
    """Say what to do with a new dataset."""
    typer.echo()
    print_next_command("fsdpo-data", "inspect", data.path)


def decontaminate(options: DecontaminateOptions) -> None:
    """Hold problems against benchmarks, and say what was found."""
    with progress() as shown:
        found = run_decontaminate(options, shown)
    for counts in found.counts():
        typer.echo(
            f"{counts['name']}: {counts['matched_questions']:,} of {counts['questions']:,} questions overlap "
            f"with {counts['problems']:,} problems; {counts['exact_questions']:,} are the same, "
            f"{counts['same_answer']:,} with the same answer"
        )
    total, clean = len(found.problems), len(found.clean_problems)
    typer.echo(f"{total - clean:,} of {total:,} problems are contaminated, {clean:,} are clean")
    if options.write_clean:
        print_next_command("fsdpo-data", "build", "--problems", options.write_clean)
    if options.out:
        typer.echo(f"sealed {options.out}")
        print_next_command("fsdpo-data", "push", options.out, "ORG/NAME")


@dataclass(frozen=True, kw_only=True)
class DemoOptions(Options):
    """Go from samples to a trained policy on the embedded model, measured before and after.

    Offline, in minutes on two cores; what is made stands in `runs/fsdpo-demo`, and what is done is
    passed over. The commands are those of the recipe `demo` of `fsdpo-bench recipe`.

    Attributes:
        dry_run: Print the commands, run nothing.
    """

    dry_run: bool = False


def demo(options: DemoOptions) -> None:
    """Run the recipe as a program: measuring stands above this package, which cannot import it."""
    line = [sys.executable, "-m", "fsdpo_bench", "recipe", "demo"]
    code = subprocess.run([*line, *(["--dry-run"] if options.dry_run else [])]).returncode
    if code:
        raise typer.Exit(code)
    if not options.dry_run:
        print_next_command("open", "runs/fsdpo-demo/after/report.html")
