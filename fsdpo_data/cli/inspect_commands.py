"""The commands of ``fsdpo-data`` that look at datasets, and at what can be named."""

import json
import shutil
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fsdpo_data import api
from fsdpo_data.cli.console import print_next_command
from fsdpo_data.cli.options import DatasetOptions
from fsdpo_data.cli.printing import print_problem, print_summary
from fsdpo_data.core.entities import Outcome
from fsdpo_data.core.files import write_text
from fsdpo_data.core.options import Option, Options
from fsdpo_data.dataset.diff import spec_changes
from fsdpo_data.dataset.migrate import migrate_dataset as to_this_schema
from fsdpo_data.dataset.schema import SCHEMA_VERSION
from fsdpo_data.engines.options import Seed
from fsdpo_data.models.prompts import TEMPLATES, versioned_name
from fsdpo_data.models.resolve import MODELS


@dataclass(frozen=True, kw_only=True)
class ValidateOptions(DatasetOptions):
    """Check every file, row and count of a dataset against the schema and its manifest.

    Attributes:
        json: Print the manifest instead.
    """

    json: bool = False


def validate(options: ValidateOptions) -> None:
    """Validate, and say what was checked."""
    manifest = api.open_dataset(options.data).validate().manifest
    if options.json:
        typer.echo(manifest.to_json(), nl=False)
        return
    rows = manifest.rows
    typer.echo(
        f"{options.data} is valid: schema {manifest.schema_version}, {rows.problems:,} "
        f"problems, {rows.solutions:,} solutions, digest {manifest.digest}"
    )


@dataclass(frozen=True, kw_only=True)
class InspectOptions(DatasetOptions):
    """Show statistics, then problems with their step-marked solutions and their pairs.

    Attributes:
        count: Problems to show.
        samples: Solutions to show of each, and pairs.
        problem: Id of one problem, or its start.
        outcome: Only solutions of this outcome.
        gamma: Temperature of the rewards in step weights α, as chosen if correct, else as rejected.
        seed: Draws the problems.
    """

    count: Annotated[int, Option(min=0)] = 2
    samples: Annotated[int, Option(min=1)] = 3
    problem: Annotated[str | None, Option(metavar="ID")] = None
    outcome: Outcome | None = None
    gamma: Annotated[float, Option(min=0)] = 0.5
    seed: Seed = 0


def inspect(options: InspectOptions) -> None:
    """Print what the manifest says, then problems."""
    data = api.open_dataset(options.data)
    print_summary(data.manifest, str(options.data))
    if options.count == 0:
        return
    typer.echo()
    chosen: dict[str, Any] = {"problem": options.problem, "outcome": options.outcome}
    for each in data.examples(options.count, seed=options.seed, **chosen):
        print_problem(each, options.samples, options.gamma)


@dataclass(frozen=True, kw_only=True)
class ViewOptions(DatasetOptions):
    """Write a dataset as a page: distributions, solutions, step rewards, pairs side by side.

    Attributes:
        out: The page; it opens offline.
        gamma: Temperature of the rewards in the step weights α of pairs.
        megabytes: Text of problems and solutions in the page.
    """

    out: Annotated[Path | None, Option(default_text="DATA.html")] = None
    gamma: Annotated[float, Option(min=0)] = 0.5
    megabytes: Annotated[float, Option(min=0.1)] = 16


def view(options: ViewOptions) -> None:
    """Write the page, and say where it is."""
    out = options.out or options.data.parent / f"{options.data.absolute().name}.html"
    data = api.open_dataset(options.data)
    write_text(out, data.page(megabytes=options.megabytes, gamma=options.gamma))
    print_next_command("open", out)


@dataclass(frozen=True, kw_only=True)
class DiffOptions(DatasetOptions):
    """Compare two datasets: rows added, removed, regraded, relabelled, rescored.

    Attributes:
        other: Another one.
        json: Print counts for machines.
    """

    other: Annotated[Path, Option(positional=True)]
    json: bool = False


def diff(options: DiffOptions) -> None:
    """Print what differs, a line for each config."""
    found = api.open_dataset(options.data).diff(api.open_dataset(options.other))
    specs = spec_changes(options.data, options.other)
    if options.json:
        counts = {config: asdict(difference) for config, difference in found.items()}
        typer.echo(json.dumps({"specs": specs, **counts}, indent=2, ensure_ascii=False))
        return
    for key, old, new in specs:
        typer.echo(f"spec {key}: {json.dumps(old)} → {json.dumps(new)}")
    for config, difference in found.items():
        changed = [f"{count:,} {what}" for what, count in difference.changed.items() if count]
        said = [f"{difference.added:,} added", f"{difference.removed:,} removed", *changed]
        kept = f"{difference.kept:,} in both"
        typer.echo(f"{config}: {', '.join(said)}  ({kept})" if difference else f"{config}: {kept}")


@dataclass(frozen=True, kw_only=True)
class MigrateOptions(DatasetOptions):
    """Bring a dataset to the schema of this release; the old one stays as it is.

    Attributes:
        data: A sealed dataset of an older schema.
        out: A new directory.
    """

    out: Path


def migrate(options: MigrateOptions) -> None:
    """Migrate, and say from where to where."""
    old = to_this_schema(options.data, options.out)
    typer.echo(f"{options.out}: migrated from schema {old} to {SCHEMA_VERSION}, and valid")


@dataclass(frozen=True, kw_only=True)
class ModelsOptions(Options):
    """List the short names of models, with what each stands for and how it is asked."""


def models(options: ModelsOptions) -> None:
    """Print a line for each short name."""
    width = max(map(len, MODELS))
    columns = shutil.get_terminal_size((10_000, 0)).columns  # whole where there is no terminal
    for name, model in MODELS.items():
        asked = f"{name:<{width}}  {model.template:<17} "
        told = f"{asked}{model.repo or model.note or 'embedded'}"
        typer.echo(textwrap.fill(told, columns, subsequent_indent=" " * len(asked)))


@dataclass(frozen=True, kw_only=True)
class TemplatesOptions(Options):
    """List the prompt templates, with the text of one if it is named.

    Attributes:
        name: Its text is shown.
    """

    name: Annotated[str | None, Option(positional=True)] = None


def templates(options: TemplatesOptions) -> None:
    """Print the names, or one text."""
    if options.name is None:
        typer.echo("\n".join(TEMPLATES))
        return
    typer.echo(TEMPLATES[versioned_name(options.name)].text)
