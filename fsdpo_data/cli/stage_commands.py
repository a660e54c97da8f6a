"""The commands of registered stages, and the output after the creation of a dataset."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from fsdpo_data import api
from fsdpo_data.cli.console import print_next_command
from fsdpo_data.cli.help import HelpGroup
from fsdpo_data.cli.options import command
from fsdpo_data.cli.printing import print_summary
from fsdpo_data.core.progress import Progress, progress
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.remote import local_paths
from fsdpo_data.dataset.stage import StageOptions
from fsdpo_data.dataset.stage_registry import NEW_DATASET, STAGES, StageEntry
from fsdpo_data.stages.merge import FinishedShard, ShardedOptions, run_shard

CREATE_PANEL = "Create"  #: Heading of the commands that create datasets.


def add_stage_command(app: typer.Typer, entry: StageEntry[Any, Any]) -> None:
    """Add the command of a stage to an application, if the stage has one."""
    if entry.options_class is None:
        return
    add = command(app, entry.options_class, name=entry.name, panel=CREATE_PANEL)

    def run_stage_command(options: StageOptions) -> None:
        """Run the stage, or one shard of it, and print the summary of the new dataset."""
        run_stage(entry, options)

    add(run_stage_command)


def run_stage(entry: StageEntry[Any, Any], options: StageOptions) -> None:
    """Run a stage, or one shard of it, and print the result."""
    if getattr(options, "shard", None):
        run_shard_command(options)
        return
    if getattr(options, "dry_run", False) and entry.describe_plan is not None:
        # Without an output, because the files of a stopped command would be uploaded there.
        inputs = options.replace(out="")
        with progress() as progress_bar, local_paths(inputs, progress_bar) as local_options:
            plan = entry.describe_plan(local_options, progress_bar)
        typer.echo(plan)
        return
    with progress() as progress_bar:
        data = api.run_stage(options, progress_bar)
    print_summary(data.statistics(), f"sealed {data.location}")
    if entry.describe_result and (text := entry.describe_result(data.manifest)):
        typer.echo(f"\n{text}")
    typer.echo()
    print_next_command(_next_words(entry.next_command, data.location))


def _next_words(words: Sequence[str], location: str) -> list[str]:
    """Return the words of the next command, with flags and the new dataset."""
    next_words: list[str] = []
    for word in words:
        name, has_value, value = word.partition("=")
        if has_value:
            next_words += [f"--{name.replace('_', '-')}", value]
        else:
            next_words.append(location if word == NEW_DATASET else word)
    return next_words


class StageGroup(HelpGroup):
    """The commands of ``fsdpo-data``, with the commands of stages that plug-ins register."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands; a stage that cannot be imported has none."""
        names: list[str] = super().list_commands(ctx)
        stages = [entry.name for entry in STAGES.importable_entries() if entry.options_class]
        return [*names, *(name for name in stages if name not in names)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; only an unknown name imports the stages of plug-ins."""
        known_command = super().get_command(ctx, cmd_name)
        if known_command is not None or cmd_name not in STAGES:
            return known_command
        entry = STAGES[cmd_name]
        if entry.options_class is None:
            return None
        app = typer.Typer(name=self.name, add_completion=False, rich_markup_mode="markdown")
        add_stage_command(app, entry)
        return typer.main.get_command(app)


def run_shard_command(options: ShardedOptions) -> None:
    """Do the work of one shard, and print the command that merges the shards."""
    with progress() as progress_bar:
        shard = run_shard(options, progress_bar)
    print_shard("fsdpo-data", shard)


def print_shard(program: str, shard: FinishedShard) -> None:
    """Print what a shard contains, and the command that merges the shards.

    Args:
        program: The program that wrote the shard.
        shard: The shard.
    """
    location = str(shard.location)
    typer.echo(f"{location} contains shard {shard.job}")
    for path, n_failed in shard.failed.items():
        typer.echo(
            f"{n_failed:,} failed items, with reasons in {location.rstrip('/')}/{path}; --resume "
            "tries them again"
        )
    name = shlex.quote(location)
    typer.echo(f"next, when all shards are finished: {program} merge {name} … --out NEW")


def create_dataset(create: Callable[[Progress], tuple[str | Path, Manifest]]) -> api.Dataset:
    """Create a dataset with a progress bar, and print its summary."""
    with progress() as progress_bar:
        location, manifest = create(progress_bar)
    data = api.open_output(location, manifest)
    print_summary(data.statistics(), f"sealed {location}")
    return data


def print_inspect_command(data: api.Dataset) -> None:
    """Print the command that inspects a new dataset."""
    typer.echo()
    print_next_command(["fsdpo-data", "inspect", data.location])
