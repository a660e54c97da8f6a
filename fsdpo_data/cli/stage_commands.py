"""The commands of registered stages, and the output after the creation of a dataset."""

import shlex
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

from fsdpo_data import api
from fsdpo_data.cli.console import print_next_command
from fsdpo_data.cli.options import command
from fsdpo_data.cli.printing import print_summary
from fsdpo_data.core.plugins import load_plugin
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


def add_plugin_stages(app: typer.Typer, arguments: Sequence[str]) -> None:
    """Add the commands of stages in plug-ins, if the command line needs them.

    Args:
        app: The application with all other commands.
        arguments: The command line after the name of the program. If it starts with a known
            command, no plug-in is loaded here; the command loads the plug-ins of ``--plugin``.

    Raises:
        InputError: if a plug-in cannot be imported.
    """
    known_names = {command_info.name for command_info in app.registered_commands}
    if not arguments or arguments[0] in known_names:
        return
    name = arguments[0]
    for plugin in _plugins_in(arguments):
        load_plugin(plugin)
    entries = STAGES.importable_entries() if name.startswith("-") else []
    if name in STAGES:
        entries = [STAGES[name]]
    for entry in entries:
        if entry.name not in known_names:
            add_stage_command(app, entry)


def _plugins_in(arguments: Sequence[str]) -> list[str]:
    """Return the values of ``--plugin`` in a command line."""
    plugins = [word.partition("=")[2] for word in arguments if word.startswith("--plugin=")]
    return plugins + [value for flag, value in pairwise(arguments) if flag == "--plugin"]


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
