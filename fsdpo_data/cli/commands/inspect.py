"""The commands of ``fsdpo-data`` that inspect and compare datasets, and list names."""

import json
import shutil
import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import Field

from fsdpo_data import api
from fsdpo_data.agreement.report import AgreeOptions, compare_labellers, format_report
from fsdpo_data.cli.commands import app
from fsdpo_data.cli.console import print_next_command
from fsdpo_data.cli.options import DatasetOptions, command
from fsdpo_data.cli.printing import print_columns, print_problem, print_summary
from fsdpo_data.core.command_line import check_read_options
from fsdpo_data.core.entities import Outcome
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import write_text
from fsdpo_data.core.options import NotWith, Option, Options
from fsdpo_data.core.sampling import Seed
from fsdpo_data.dataset.diff import option_changes
from fsdpo_data.dataset.step_labels import find_label_kind
from fsdpo_data.dataset.validate import explain_damage
from fsdpo_data.engines.scorers.prm_formats import PRM_FORMATS
from fsdpo_data.models.prompts import TEMPLATES, find_template
from fsdpo_data.models.resolve import MODELS
from fsdpo_data.steps.rewards import DEFAULT_GAMMA


class ValidateOptions(DatasetOptions):
    """Check every file, row and count of a dataset against the schema and its manifest.

    Examples:
        fsdpo-data validate runs/a
    """

    as_json: Annotated[bool, Option(flags=["--json"])] = False
    """Print the manifest as JSON."""


@command(app, ValidateOptions, panel="Inspect")
def validate(options: ValidateOptions) -> None:
    """Validate a dataset, and print its size and digest."""
    manifest = api.open_dataset(options.data).validate().manifest
    if options.as_json:
        typer.echo(manifest.to_json(), nl=False)
        return
    rows = manifest.rows
    typer.echo(
        f"{options.data} is valid: schema {manifest.schema_version}, {rows.problems:,} "
        f"problems, {rows.solutions:,} solutions, digest {manifest.digest}"
    )


@command(app, AgreeOptions, panel="Inspect")
def agree(options: AgreeOptions) -> None:
    """Print the agreement of two labellers."""
    report = compare_labellers(options)
    if options.as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2, ensure_ascii=False))
        return
    typer.echo(format_report(report))


class InspectOptions(DatasetOptions):
    """Print statistics, then problems with their solutions, step by step, and their pairs.

    Examples:
        fsdpo-data inspect runs/a --count 3 --samples 2

        fsdpo-data inspect runs/a --outcome incorrect

        fsdpo-data inspect runs/a --problem 3fa9

        fsdpo-data inspect runs/a --columns
    """

    columns: bool = False
    """Print the columns with type, version, number of nulls and description, and no problems."""
    count: Annotated[int, Field(ge=0), NotWith("columns")] = 2
    """Number of problems, a random choice. `view` shows them all on a page."""
    samples: Annotated[int, Field(ge=1), NotWith("columns")] = 3
    """Number of solutions, and of pairs, per problem."""
    problem: Annotated[str | None, Option(metavar="ID"), NotWith("columns")] = None
    """Only the problem whose id starts with this text."""
    outcome: Annotated[Outcome | None, NotWith("columns")] = None
    """Only solutions with this outcome."""
    gamma: Annotated[float, Field(ge=0)] = DEFAULT_GAMMA
    """Inverse temperature γ of the step weights α that the step-wise loss would use. Correct
    solutions get the weights of chosen solutions, and others the weights of rejected solutions.
    """
    seed: Annotated[Seed, NotWith("columns", "problem")] = 0
    """Seed of the random choice of problems."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options of problems without a problem."""
        super().model_post_init(context)
        if self.count == 0:
            names = ["samples", "problem", "outcome", "seed"]
            check_read_options(self, "count", ["0"], {"1 or more": names})


@command(app, InspectOptions, panel="Inspect")
def inspect(options: InspectOptions) -> None:
    """Print the summary of a dataset, then some of its problems."""
    data = api.open_dataset(options.data)
    print_summary(data.statistics(options.gamma), str(options.data))
    if options.columns:
        print_columns(data.columns())
        return
    if options.count == 0:
        return
    typer.echo()
    with explain_damage(data.path):
        problems = data.examples(
            options.count, seed=options.seed, problem=options.problem, outcome=options.outcome
        )
        label_kind = find_label_kind(data.manifest)
        for problem in problems:
            print_problem(problem, options.samples, options.gamma, label_kind)
    if options.problem is None and options.outcome is None:
        n_problems = data.manifest.rows.problems
        if len(problems) < n_problems:
            typer.echo(
                f"{len(problems)} of {n_problems:,} problems, a random choice; "
                f"--count {n_problems} shows all"
            )


class ViewOptions(DatasetOptions):
    """Write an HTML page with distributions, solutions, step rewards, and pairs side by side.

    Examples:
        fsdpo-data view runs/pairs --out pairs.html
    """

    out: Annotated[Path | None, Option(default_text="DATA.html")] = None
    """File for the page, which works offline."""
    gamma: Annotated[float, Field(ge=0)] = DEFAULT_GAMMA
    """Inverse temperature γ of the step weights α of pairs."""


@command(app, ViewOptions, panel="Inspect")
def view(options: ViewOptions) -> None:
    """Write the page, and print the command that opens the page."""
    data = api.open_dataset(options.data)
    out = options.out or _page_path(options.data)
    write_text(out, data.page(gamma=options.gamma))
    print_next_command(["open", out])


def _page_path(data: str | Path) -> Path:
    """Return the default file of a page: next to a local dataset, and here for a URL."""
    if isinstance(data, Path):
        return data.parent / f"{data.absolute().name}.html"
    return Path(f"{data.rstrip('/').rpartition('/')[2]}.html")


class DiffOptions(DatasetOptions):
    """Compare two datasets: count added, removed, regraded, relabelled and rescored rows.

    Examples:
        fsdpo-data diff runs/a runs/a-regraded
    """

    other: Annotated[str | Path, Option(positional=True, dataset="input")]
    """Directory or URL of another dataset."""
    as_json: Annotated[bool, Option(flags=["--json"])] = False
    """Print the counts as JSON."""


@command(app, DiffOptions, panel="Inspect")
def diff(options: DiffOptions) -> None:
    """Print the options that differ, then one line per config (problems, solutions, pairs)."""
    data = api.open_dataset(options.data)
    other = api.open_dataset(options.other)
    differences = data.diff(other)
    changed_options = option_changes(data.path, other.path)
    if options.as_json:
        values: dict[str, Any] = {"options": changed_options}
        for config, difference in differences.items():
            values[config] = asdict(difference)
        typer.echo(json.dumps(values, indent=2, ensure_ascii=False))
        return
    for key, old, new in changed_options:
        typer.echo(f"option {key}: {json.dumps(old)} → {json.dumps(new)}")
    for config, difference in differences.items():
        in_both = f"{difference.common:,} in both"
        if not difference:
            typer.echo(f"{config}: {in_both}")
            continue
        changes = [f"{count:,} {kind}" for kind, count in difference.changed.items() if count]
        counts = [f"{difference.added:,} added", f"{difference.removed:,} removed", *changes]
        typer.echo(f"{config}: {', '.join(counts)}  ({in_both})")


class ListOptions(Options):
    """List the names that options accept, or print the text of one prompt template.

    Examples:
        fsdpo-data list models

        fsdpo-data list templates alpaca

        fsdpo-data list prm-formats
    """

    kind: Annotated[
        Literal["models", "templates", "prm-formats"],
        Option(positional=True, metavar="models|templates|prm-formats"),
    ]
    """Kind of names: short names of models, prompt templates, or PRM formats."""
    name: Annotated[str | None, Option(positional=True)] = None
    """Template to print: a name, a `.txt` file, or the directory of a dataset."""


@command(app, ListOptions, panel="Inspect", name="list")
def list_names(options: ListOptions) -> None:
    """Print one line per name, or the text of a template."""
    if options.name is not None:
        if options.kind != "templates":
            raise InputError(
                "only templates have a text to print. Remove the name.",
                field="name",
                value=options.name,
            )
        typer.echo(find_template(options.name).text)
    elif options.kind == "templates":
        typer.echo("\n".join(TEMPLATES))
    elif options.kind == "models":
        _print_table(
            (name, model.template, model.repo or model.note or "embedded")
            for name, model in MODELS.items()
        )
    else:
        _print_table(
            (row.name, row.meaning, row.unsupported_reason or ", ".join(row.models))
            for row in PRM_FORMATS.values()
        )


def _print_table(rows: Iterable[tuple[str, str, str]]) -> None:
    """Print rows of three columns; a terminal wraps the last one."""
    rows = list(rows)
    first_width, second_width = (max(len(row[index]) for row in rows) for index in (0, 1))
    # Without a terminal, the lines are not wrapped.
    columns = shutil.get_terminal_size((10_000, 0)).columns
    for first, second, last in rows:
        prefix = f"{first:<{first_width}}  {second:<{second_width}} "
        typer.echo(textwrap.fill(f"{prefix} {last}", columns, subsequent_indent=" " * len(prefix)))
