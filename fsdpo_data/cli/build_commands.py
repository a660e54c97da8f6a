"""The commands of ``fsdpo-data`` that create datasets."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from fsdpo_data import api
from fsdpo_data.cli.console import print_next_command
from fsdpo_data.cli.printing import print_changes, print_summary
from fsdpo_data.core.options import Options
from fsdpo_data.core.progress import Progress, progress
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.stage import StageOptions
from fsdpo_data.stages.decontaminate import DecontaminateOptions, run_decontaminate
from fsdpo_data.stages.grade import GradeOptions
from fsdpo_data.stages.label import LabelOptions, format_rollout_cost
from fsdpo_data.stages.merge import MergeOptions, ShardedOptions, run_shard
from fsdpo_data.stages.merge import merge as merge_shards
from fsdpo_data.stages.pair import PairOptions
from fsdpo_data.stages.pipeline import BuildOptions, run_build
from fsdpo_data.stages.score import ScoreOptions


def build(options: BuildOptions) -> None:
    """Build a dataset, or one shard of it."""
    if options.shard:
        _run_shard(options)
        return
    data = create_dataset(partial(run_build, options))
    print_inspect_command(data)


def label(options: LabelOptions) -> None:
    """Label the steps of a dataset, and print the cost of the labels."""
    if options.shard:
        _run_shard(options)
        return
    data = _run_stage(options)
    if data.manifest.rollouts:
        typer.echo(f"\n{format_rollout_cost(data.manifest.rollouts)}")
    print_next_command(["fsdpo-train", "prm", data.path, "--labels", "rollouts", "--out", "NEW"])


def score(options: ScoreOptions) -> None:
    """Score the steps of a dataset, or of one shard of it."""
    if options.shard:
        _run_shard(options)
        return
    print_inspect_command(_run_stage(options))


def grade(options: GradeOptions) -> None:
    """Grade a dataset again, and print the changed outcomes."""
    data = _run_stage(options)
    if data.manifest.regraded:
        print_changes(data.manifest.regraded)
    print_inspect_command(data)


def pair(options: PairOptions) -> None:
    """Select preference pairs from a dataset."""
    print_inspect_command(_run_stage(options))


def merge(options: MergeOptions) -> None:
    """Merge the shards of a dataset."""
    data = create_dataset(partial(merge_shards, options))
    print_inspect_command(data)


def _run_shard(options: ShardedOptions) -> None:
    """Do the work of one shard, and print the command that merges the shards."""
    with progress() as progress_bar:
        out = run_shard(options, progress_bar)
    typer.echo(f"{out} contains shard {options.shard}")
    typer.echo(f"next, when all shards are finished: fsdpo-data merge {out} … --out NEW")


def _run_stage(options: StageOptions) -> api.Dataset:
    """Run a stage with a progress bar, and print the summary of the new dataset."""
    with progress() as progress_bar:
        data = api.run_stage(options, progress_bar)
    print_summary(data.manifest, f"sealed {data.path}")
    return data


def create_dataset(create: Callable[[Progress], tuple[Path, Manifest]]) -> api.Dataset:
    """Create a dataset with a progress bar, and print its summary."""
    with progress() as progress_bar:
        path, manifest = create(progress_bar)
    print_summary(manifest, f"sealed {path}")
    return api.Dataset(path, manifest)


def print_inspect_command(data: api.Dataset) -> None:
    """Print the command that inspects a new dataset."""
    typer.echo()
    print_next_command(["fsdpo-data", "inspect", data.path])


def decontaminate(options: DecontaminateOptions) -> None:
    """Compare problems with benchmarks, and print the overlap."""
    with progress() as progress_bar:
        report = run_decontaminate(options, progress_bar)
    for counts in report.counts():
        typer.echo(
            f"{counts['name']}: {counts['matched_questions']:,} of {counts['questions']:,} "
            f"questions overlap with {counts['problems']:,} problems; "
            f"{counts['exact_questions']:,} are identical, "
            f"{counts['same_answer']:,} have the same answer"
        )
    n_problems = len(report.problems)
    n_clean = len(report.clean_problems)
    typer.echo(
        f"{n_problems - n_clean:,} of {n_problems:,} problems are contaminated, "
        f"{n_clean:,} are clean"
    )
    if options.write_clean:
        print_next_command(["fsdpo-data", "build", "--problems", options.write_clean])
    if options.out:
        typer.echo(f"sealed {options.out}")
        print_next_command(["fsdpo-data", "push", options.out, "ORG/NAME"])


@dataclass(frozen=True, kw_only=True)
class DemoOptions(Options):
    """Run all stages with the embedded model, from samples to an evaluated policy.

    The demo works offline and takes minutes on two CPU cores. All outputs are in
    `runs/fsdpo-demo`, and a second run skips finished stages. The commands are the recipe `demo`
    of `fsdpo-bench recipe`.

    Attributes:
        dry_run: Print the commands, and run nothing.
    """

    dry_run: bool = False


def demo(options: DemoOptions) -> None:
    """Run the recipe ``demo`` in a new process.

    The recipe is part of ``fsdpo_bench``, which this package must not import.
    """
    command = [sys.executable, "-m", "fsdpo_bench", "recipe", "demo"]
    if options.dry_run:
        command.append("--dry-run")
    exit_code = subprocess.run(command).returncode
    if exit_code:
        raise typer.Exit(exit_code)
    if not options.dry_run:
        print_next_command(["open", "runs/fsdpo-demo/after/report.html"])
