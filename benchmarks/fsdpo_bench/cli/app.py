"""The ``fsdpo-bench`` command line. Heavy libraries load inside the commands that need them."""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fsdpo_bench.cli import options as take
from fsdpo_bench.prm.measure import PrmOptions, measure_prm
from fsdpo_bench.publish.export import export_run
from fsdpo_bench.recipes.recipe import GPUS, load_recipe, recipe_names, run_stages
from fsdpo_bench.results.compare import compare_runs
from fsdpo_bench.runs.options import RunOptions
from fsdpo_bench.tasks.fetch import fetch_file
from fsdpo_bench.tasks.table import builtin_tasks, get_task, select_tasks
from fsdpo_data.cli.console import new_app, print_next_command, run_app
from fsdpo_data.cli.help import HelpCommand
from fsdpo_data.cli.options import command
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import write_text
from fsdpo_data.core.lazy import LazyModule
from fsdpo_data.core.progress import progress
from fsdpo_data.core.toml_tables import read_toml

if TYPE_CHECKING:
    from fsdpo_bench.cli import printing
else:
    printing = LazyModule("fsdpo_bench.cli.printing")

_EXAMPLES = read_toml(Path(__file__).with_name("examples"))

app = new_app("fsdpo-bench", "Measure mathematical reasoning: benchmarks, grading, comparison.")


@command(app, RunOptions, examples=_EXAMPLES["run"])
def run(options: RunOptions) -> None:
    """Decode, grade and report."""
    from fsdpo_bench.runs.make_job import run_job

    _finish(run_job(options, _warn), as_json=options.as_json)


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


def _finish(out: Path, *, as_json: bool, megabytes: float = 16) -> None:
    """Report on a run whose records are complete, and say what to do next."""
    from fsdpo_bench.report.render import write_report

    results = write_report(out, int(megabytes * 1_000_000), _warn)
    if as_json:
        return _print_json(results)
    printing.print_results(results)
    typer.echo()
    print_next_command("open", out / "report.html")
    print_next_command("fsdpo-bench", "inspect", out, "--outcome", "incorrect")


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


@command(app, take.RunInspectOptions, examples=_EXAMPLES["inspect"])
def inspect(options: take.RunInspectOptions) -> None:
    """Show problems of a run."""
    found = printing.matching_records(options)
    if options.as_json:
        for record in found:
            typer.echo(json.dumps(record, ensure_ascii=False))
        return
    printing.print_records(found, options.count, options.samples)


@command(app, take.RunDiffOptions, examples=_EXAMPLES["diff"])
def diff(options: take.RunDiffOptions) -> None:
    """Compare two runs."""
    compared = compare_runs(options.run_a, options.run_b, options)
    if options.html is not None:
        from fsdpo_bench.report.comparison_page import render_comparison

        write_text(options.html, render_comparison(options.run_a, options.run_b, compared))
    if options.as_json:
        _print_json(asdict(compared))
    else:
        printing.print_comparison(compared, options.show)
        if options.html is not None:
            typer.echo()
            print_next_command("open", options.html)


@command(app, take.ResponseGradeOptions, examples=_EXAMPLES["grade"])
def grade(options: take.ResponseGradeOptions) -> None:
    """Judge what is there already."""
    from fsdpo_data.answers.grader import MathGrader

    if (options.data is None) == (options.explain is None):
        raise InputError("expected `data`, a run or a file of responses, or `explain`.")
    tolerance = options.tolerance
    if tolerance is None and options.task is not None:
        tolerance = get_task(options.task).tolerance
    if options.explain is not None:
        [verdict] = MathGrader(tolerance).grade([options.explain])
        printing.print_verdict(options.explain[0], verdict)
    elif options.data is not None and options.data.is_dir():
        _grade_run(options.data, options)
    elif options.data is not None:
        _grade_file(options.data, options, tolerance)


def _grade_run(run: Path, options: take.ResponseGradeOptions) -> None:
    from fsdpo_bench.runs.regrade import regrade_run

    if options.out is None:
        raise InputError("missing: a run is graded into a new directory.", field="out")
    how = (options.k, options.aggregate, options.workers)
    with progress() as shown:
        regrade_run(run, options.out, *how, shown, resume=options.resume)
    _finish(options.out, as_json=options.as_json)


def _grade_file(file: Path, options: take.ResponseGradeOptions, tolerance: float | None) -> None:
    from fsdpo_bench.recorded.outputs import grade_outputs, read_outputs, summarize_by_series

    scored = grade_outputs(read_outputs(file), tolerance, options.workers)
    series = summarize_by_series(scored)
    if options.as_json:
        _print_json(series)
        return
    printing.print_series(series)
    printing.print_disputed(
        [each for each in scored if each.disagrees_with_publisher], options.show
    )


@command(app, take.ReportOptions, examples=_EXAMPLES["report"])
def report(options: take.ReportOptions) -> None:
    """Write the reports again."""
    _finish(options.data, as_json=options.as_json, megabytes=options.megabytes)


@command(app, take.ResultsPushOptions, examples=_EXAMPLES["push"])
def push(options: take.ResultsPushOptions) -> None:
    """Show results on the Hub."""
    from fsdpo_bench.publish import push as hub

    plan = hub.plan_push(options.data, options.name)
    for path, text in plan.files.items():
        typer.echo(f"{path}\n{text}")
    for name, why in plan.left_out.items():
        _warn(f"{name} is left out: {why}")
    if options.dry_run:
        return typer.echo(f"would go to {plan.repo.url}, with model-index in its card")
    typer.echo(f"pushed: {hub.push(plan, pull_request=options.pull_request)}")


@command(app, take.RunExportOptions, examples=_EXAMPLES["export"])
def export(options: take.RunExportOptions) -> None:
    """Write responses as other harnesses do."""
    for file in export_run(options.data, options.to, options.out, options.decoder):
        typer.echo(str(file))


@command(app, take.IndexOptions, examples=_EXAMPLES["index"])
def index(options: take.IndexOptions) -> None:
    """List runs on a page."""
    from fsdpo_bench.report.index import render_index

    out = options.out or options.data / "index.html"

    def written() -> bool:
        page, whole = render_index(options.data, out, options.watch)
        write_text(out, page)
        return whole

    whole = written()
    print_next_command("open", out)
    while options.watch is not None and not whole:
        time.sleep(options.watch)
        whole = written()


@command(app, PrmOptions, examples=_EXAMPLES["prm"])
def prm(options: PrmOptions) -> None:
    """Measure a process reward model."""
    with progress() as shown:
        measured = measure_prm(options, shown)
    if options.as_json:
        _print_json(asdict(measured))
    else:
        printing.print_prm(measured)


@app.command(epilog="**Example** `fsdpo-bench tasks`", cls=HelpCommand)
def tasks() -> None:
    """List the benchmarks and the suites."""
    printing.print_tasks(list(builtin_tasks().values()))


@command(app, take.FetchOptions, examples=_EXAMPLES["fetch"])
def fetch(options: take.FetchOptions) -> None:
    """Get benchmarks that have no home on the Hub."""
    for task in map(get_task, options.task) if options.task else builtin_tasks().values():
        if task.fetch is not None:
            file = fetch_file(task.name, task.fetch, options.out)
            typer.echo(f"{task.name}: {file}  (licence: {task.licence}; {task.source})")
        elif options.task:
            where = "on the Hub: `run` gets them from there" if task.hub else "at hand already"
            raise InputError(f"its rows are {where}.", field="task", value=task.name)


@command(app, take.TaskValidateOptions, examples=_EXAMPLES["validate"])
def validate(options: take.TaskValidateOptions) -> None:
    """Check benchmarks."""
    from fsdpo_bench.tasks.validate import validate_task

    wanted = select_tasks(options.suite, options.task)
    reports = []
    with progress() as shown:
        shown.phase("validate", len(wanted))
        for each in wanted:
            reports.append(validate_task(each, options.data))
            shown.advance(1)
    if options.as_json:
        _print_json([report.as_dict() for report in reports])
    else:
        printing.print_reports(reports)
    raise typer.Exit(0 if all(report.has_passed for report in reports) else 1)


@command(app, take.RecipeOptions, examples=_EXAMPLES["recipe"])
def recipe(options: take.RecipeOptions) -> None:
    """Run a recipe."""
    if options.name is None:
        printing.print_recipes([load_recipe(each) for each in recipe_names()])
        return
    found = load_recipe(options.name)
    stages = found.select_stages(options.stage)
    if options.as_json:
        _print_json(found.plan_dict(stages, GPUS[options.gpu]))
    elif options.dry_run:
        printing.print_plan(found, stages, GPUS[options.gpu], options.price)
    else:
        run_stages(stages, typer.echo)
        printing.print_costs(stages, GPUS[options.gpu], options.price)


def main() -> None:
    """Run ``fsdpo-bench``."""
    run_app(app)
