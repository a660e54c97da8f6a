"""The ``fsdpo-bench`` command line.

Heavy libraries load inside the commands that need them.
"""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fsdpo_bench.cli import options as cli_options
from fsdpo_bench.prm.measure_prm import PrmOptions, measure_prm
from fsdpo_bench.recipes.load import load_recipes, shipped_recipes
from fsdpo_bench.recipes.paper_tables import paper_cells
from fsdpo_bench.recipes.recipe import merge_stages
from fsdpo_bench.recipes.run_stages import run_stages
from fsdpo_bench.run_options import RunOptions
from fsdpo_bench.tasks.fetch import fetch_file
from fsdpo_bench.tasks.table import all_tasks, builtin_tasks, get_task
from fsdpo_data.cli.console import new_app, print_next_command, run_app
from fsdpo_data.cli.help import HelpCommand
from fsdpo_data.cli.options import command
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import LazyModule
from fsdpo_data.core.progress import progress as show_progress
from fsdpo_data.core.terminal import strip_control_characters
from fsdpo_data.core.urls import is_url

if TYPE_CHECKING:
    from fsdpo_bench.cli import printing, recipe_printing
    from fsdpo_bench.report import terminal_tables as tables
else:
    printing = LazyModule("fsdpo_bench.cli.printing")
    recipe_printing = LazyModule("fsdpo_bench.cli.recipe_printing")
    tables = LazyModule("fsdpo_bench.report.terminal_tables")

app = new_app(
    "fsdpo-bench",
    "Runs benchmarks, and measures policies, reward models and datasets.",
)


@command(app, RunOptions)
def run(options: RunOptions) -> None:
    """Solve benchmarks, and write reports."""
    from fsdpo_bench.run_shards import run_shard
    from fsdpo_data.cli.stage_commands import print_shard
    from fsdpo_data.dataset.remote import local_paths

    if options.shard is not None:
        shard = run_shard(options, _warn)
        if options.as_json:
            out = str(shard.location)
            tables.print_json({"shard": str(shard.job), "out": out, "failed": shard.failed})
        else:
            print_shard("fsdpo-bench", shard)
        return
    with local_paths(options) as local_options:
        _solve(local_options, options.out, as_json=options.as_json)


def _solve(
    options: RunOptions, location: str | Path | None, *, as_json: bool, is_merge: bool = False
) -> None:
    """Solve benchmarks in a local folder, and report on them.

    Args:
        options: The options, with a local output.
        location: The output that the user named.
        as_json: Whether to print JSON.
        is_merge: Whether the folder has the solutions of merged shards.
    """
    from fsdpo_bench.benchmark_run import run_benchmarks

    folder = run_benchmarks(options, _warn, location=location, is_merge=is_merge)
    report_options = cli_options.ReportOptions(data=(folder,), as_json=as_json)
    _report(report_options, url=location if is_url(location) else None)


@command(app, cli_options.RunMergeOptions)
def merge(options: cli_options.RunMergeOptions) -> None:
    """Merge the shards of a run, and write reports."""
    from fsdpo_bench.run_shards import merged_shards

    with merged_shards(options) as run_options:
        _solve(run_options, options.out, as_json=options.as_json, is_merge=True)


def _warn(text: str) -> None:
    print(strip_control_characters(f"warning: {text}"), file=sys.stderr)


@command(app, cli_options.ReportOptions)
def report(options: cli_options.ReportOptions) -> None:
    """Measure runs and datasets."""
    if options.disagreements:
        _report_disagreements(options)
    else:
        _report(options)


def _report(options: cli_options.ReportOptions, url: str | Path | None = None) -> None:
    """Write the reports, and print the results.

    Args:
        options: The options of the reports.
        url: The URL to which the folder of the report is uploaded; None for a local folder.
    """
    from fsdpo_bench.metrics.measure import MeasureSpec
    from fsdpo_bench.report.reports import make_reports
    from fsdpo_bench.report.terminal import print_reports
    from fsdpo_data.dataset.remote import local_paths

    spec = MeasureSpec(
        sizes=options.k,
        aggregates=options.aggregate,
        gammas=options.gamma,
    )
    with show_progress() as progress, local_paths(options, progress) as local_options:
        reports = make_reports(
            [Path(root) for root in local_options.data],
            spec,
            problems=options.problems,
            policies=options.likelihood,
            out=options.out,
            writes_into_run=not any(map(is_url, options.data)),
            warn=_warn,
            progress=progress,
        )
    folder = reports[0].folder
    print_reports(reports, as_json=options.as_json)
    if folder is not None and not options.as_json:
        typer.echo()
        if url is None:
            print_next_command(["open", folder / "report.html"])
        else:
            print_next_command(["fsdpo-bench", "report", url])


def _report_disagreements(options: cli_options.ReportOptions) -> None:
    """Print the solutions whose verdict differs from the imported one."""
    from fsdpo_bench.metrics.disagreements import compare_verdicts
    from fsdpo_bench.report.terminal import print_disagreements
    from fsdpo_data.dataset.remote import local_paths

    with local_paths(options) as local_options:
        comparisons = {
            str(location): compare_verdicts(Path(root))
            for location, root in zip(options.data, local_options.data, strict=True)
        }
    if options.as_json:
        tables.print_json({root: asdict(entry) for root, entry in comparisons.items()})
        return
    for root, comparison in comparisons.items():
        print_disagreements(root, comparison, options.show)


@command(app, cli_options.MeasurementDiffOptions)
def diff(options: cli_options.MeasurementDiffOptions) -> None:
    """Compare two runs or datasets."""
    from fsdpo_bench.report.terminal import report_comparison
    from fsdpo_data.dataset.remote import local_paths

    with local_paths(options) as local_options:
        report_comparison(
            Path(local_options.a),
            Path(local_options.b),
            local_options,
            html=options.html,
            count=options.show,
            columns=options.columns,
            as_json=options.as_json,
        )
    if options.html is not None and not options.as_json:
        typer.echo()
        print_next_command(["open", options.html])


@command(app, cli_options.ResultsPushOptions)
def push(options: cli_options.ResultsPushOptions) -> None:
    """Push results to the Hub."""
    from fsdpo_data.dataset.remote import local_paths

    with local_paths(options) as local_options:
        _push(local_options, is_copy=is_url(options.data))


def _push(options: cli_options.ResultsPushOptions, *, is_copy: bool) -> None:
    """Push the results of a run in a local folder, which may be a copy of a run at a URL."""
    from fsdpo_bench.publish import push as hub

    plan = hub.plan_push(Path(options.data), options.name, is_copy=is_copy)
    for path, text in plan.files.items():
        typer.echo(f"{path}\n{text}")
    for name, reason in plan.left_out.items():
        _warn(f"{name} is left out: {reason}")
    hub.check_push(plan, pull_request=options.pull_request)
    if options.dry_run:
        typer.echo(f"would push to {plan.repo.url}, with model-index in its card")
        return
    typer.echo(f"pushed: {hub.push(plan, pull_request=options.pull_request)}")


@command(app, PrmOptions)
def prm(options: PrmOptions) -> None:
    """Measure a process reward model."""
    with show_progress() as progress:
        measurements = measure_prm(options, progress)
    if options.as_json:
        tables.print_json(asdict(measurements))
    else:
        printing.print_prm(measurements)


@app.command(epilog="**Example** `fsdpo-bench tasks`", cls=HelpCommand)
def tasks() -> None:
    """List benchmarks and suites."""
    printing.print_tasks(list(all_tasks().values()))


@command(app, cli_options.FetchOptions)
def fetch(options: cli_options.FetchOptions) -> None:
    """Download benchmarks that are not on the Hub."""
    for task in map(get_task, options.task) if options.task else builtin_tasks().values():
        if task.fetch is not None:
            file = fetch_file(task.name, task.fetch, options.out)
            typer.echo(f"{task.name}: {file}  (licence: {task.licence}; {task.source})")
        elif options.task:
            message = "the benchmark needs no download, because its rows are part of fsdpo."
            if task.hub:
                message = "the benchmark is on the Hub, and `run` loads it from there."
            raise InputError(message, field="task", value=task.name)


@command(app, cli_options.RecipeOptions)
def recipe(options: cli_options.RecipeOptions) -> None:
    """Run a recipe."""
    if options.name is None:
        recipe_printing.print_recipes(list(shipped_recipes().values()))
        return
    recipes = load_recipes(options.name, options.row, options.set, smoke=options.smoke)
    stages_by_recipe = [(recipe, recipe.select_stages(options.stage)) for recipe in recipes]
    if options.as_json:
        plans = [recipe.plan_dict(stages) for recipe, stages in stages_by_recipe]
        tables.print_json(plans if len(plans) > 1 else plans[0])
        return
    if len(recipes) > 1:
        recipe_printing.print_recipes(recipes)
        typer.echo()
    if options.dry_run:
        for selected_recipe, stages in stages_by_recipe:
            recipe_printing.print_plan(selected_recipe, stages)
    elif not options.results:
        for selected_recipe, stages in stages_by_recipe:
            run_stages(
                stages,
                typer.echo,
                environment=selected_recipe.environment,
                stages_file=selected_recipe.stages_file,
            )
        recipe_printing.print_costs(list(merge_stages(stages for _, stages in stages_by_recipe)))
        typer.echo()
    is_complete = len(recipes) > 1 and not options.row
    recipe_printing.print_paper_tables(
        paper_cells(recipes, closed_models=is_complete and not options.smoke)
    )


def main() -> None:
    """Run ``fsdpo-bench``."""
    run_app(app)
