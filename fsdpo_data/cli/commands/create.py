"""The commands of ``fsdpo-data`` that create datasets: the demo, builds and all stages."""

import sys
from functools import partial

import typer

from fsdpo_data.cli.commands import app
from fsdpo_data.cli.console import print_next_command
from fsdpo_data.cli.options import command
from fsdpo_data.cli.stage_commands import (
    CREATE_PANEL,
    add_stage_command,
    create_dataset,
    print_inspect_command,
    run_shard_command,
)
from fsdpo_data.core.options import Options
from fsdpo_data.core.progress import progress
from fsdpo_data.core.sampling import Seed
from fsdpo_data.core.workers import run_child
from fsdpo_data.dataset.stage_registry import STAGES
from fsdpo_data.stages.decontaminate import DecontaminateOptions, run_decontaminate
from fsdpo_data.stages.merge import MergeOptions, merge_shards
from fsdpo_data.stages.pipeline import BuildOptions, run_build
from fsdpo_data.stages.seal import SealOptions, run_seal


class DemoOptions(Options):
    """Run all stages with the model in the package, from samples to an evaluated policy.

    The demo works offline and takes minutes on two CPU cores. All outputs are in
    `runs/fsdpo-demo`, and a second run skips finished stages. The commands are the recipe `demo`
    of `fsdpo-bench recipe`. The last stage prints a table that compares the policy before and after
    training.

    Examples:
        fsdpo-data demo

        fsdpo-data demo --seed 1
    """

    seed: Seed = 0
    """Random seed of the problems, samples and models. With another seed than 0, the outputs are in
    `runs/fsdpo-demo-SEED`.
    """
    dry_run: bool = False
    """Print the commands, and run nothing."""


@command(app, DemoOptions, panel=CREATE_PANEL)
def demo(options: DemoOptions) -> None:
    """Run the recipe ``demo`` in a new process.

    The recipe is part of ``fsdpo_bench``, which this package must not import.
    """
    words = [sys.executable, "-m", "fsdpo_bench", "recipe", "demo"]
    folder = "runs/fsdpo-demo"
    if options.seed:
        folder += f"-{options.seed}"
        words += ["--set", f"seed={options.seed}", "--set", f"folder={folder}"]
    if options.dry_run:
        words.append("--dry-run")
    exit_code = run_child(words)
    if exit_code:
        raise typer.Exit(exit_code)
    if not options.dry_run:
        print_next_command(["open", f"{folder}/after/report.html"])


@command(app, BuildOptions, panel=CREATE_PANEL)
def build(options: BuildOptions) -> None:
    """Build a dataset, or one shard of it."""
    if options.shard:
        run_shard_command(options)
        return
    print_inspect_command(create_dataset(partial(run_build, options)))


#: Stages whose commands do more, and are in modules of their own.
_OWN_COMMANDS = ("grade",)

for _entry in sorted(STAGES.loaded_entries(), key=lambda entry: entry.name):
    if _entry.name not in _OWN_COMMANDS:
        add_stage_command(app, _entry)


@command(app, MergeOptions, panel=CREATE_PANEL)
def merge(options: MergeOptions) -> None:
    """Merge the shards of a dataset."""
    print_inspect_command(create_dataset(partial(merge_shards, options)))


@command(app, SealOptions, panel=CREATE_PANEL)
def seal(options: SealOptions) -> None:
    """Seal an edited dataset."""
    print_inspect_command(create_dataset(partial(run_seal, options)))


@command(app, DecontaminateOptions, panel=CREATE_PANEL)
def decontaminate(options: DecontaminateOptions) -> None:
    """Compare problems with benchmarks, and print the overlap."""
    with progress() as progress_bar:
        report = run_decontaminate(options, progress_bar)
    for name, counts in report.counts().benchmarks.items():
        typer.echo(
            f"{name}: {counts.matched_questions:,} of {counts.questions:,} "
            f"questions overlap with {counts.problems:,} problems; "
            f"{counts.exact_questions:,} are identical, "
            f"{counts.same_answer:,} have the same answer"
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
