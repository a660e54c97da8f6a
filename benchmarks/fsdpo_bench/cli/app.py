"""The ``fsdpo-bench`` command line.

Heavy libraries load inside the commands that need them.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fsdpo_bench.cli import options as cli_options
from fsdpo_bench.prm.measure import PrmOptions, measure_prm
from fsdpo_bench.recipes.load import load_recipes, shipped_recipes
from fsdpo_bench.recipes.paper_tables import paper_cells
from fsdpo_bench.recipes.recipe import merge_stages, run_stages
from fsdpo_bench.rerank.options import RerankOptions
from fsdpo_bench.runs.options import RunOptions
from fsdpo_bench.tasks.fetch import fetch_file
from fsdpo_bench.tasks.table import all_tasks, builtin_tasks, get_task, select_tasks
from fsdpo_data.cli.console import new_app, print_next_command, run_app
from fsdpo_data.cli.help import HelpCommand
from fsdpo_data.cli.options import command
from fsdpo_data.core.command_line import local_command_line
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import write_text
from fsdpo_data.core.lazy import LazyModule
from fsdpo_data.core.options import check_read_options
from fsdpo_data.core.progress import progress as show_progress
from fsdpo_data.core.terminal import strip_control_characters

if TYPE_CHECKING:
    from fsdpo_bench.cli import printing, recipe_printing, record_printing, rerank_printing
    from fsdpo_bench.report import tables
else:
    printing = LazyModule("fsdpo_bench.cli.printing")
    recipe_printing = LazyModule("fsdpo_bench.cli.recipe_printing")
    record_printing = LazyModule("fsdpo_bench.cli.record_printing")
    rerank_printing = LazyModule("fsdpo_bench.cli.rerank_printing")
    tables = LazyModule("fsdpo_bench.report.tables")

app = new_app(
    "fsdpo-bench",
    "Measure mathematical reasoning: run benchmarks, grade responses, compare models.",
)


@command(app, RunOptions)
def run(options: RunOptions) -> None:
    """Decode benchmarks, grade the answers and write reports."""
    from fsdpo_bench.runs.make_job import run_job

    _report(run_job(options, _warn), as_json=options.as_json)


def _warn(text: str) -> None:
    print(strip_control_characters(f"warning: {text}"), file=sys.stderr)


def _report(out: Path, *, as_json: bool, megabytes: float = 16) -> None:
    """Write the reports of a complete run, and print the results and the next commands."""
    from fsdpo_bench.report.terminal import report_run

    report_run(out, int(megabytes * 1_000_000), _warn, as_json=as_json)
    if as_json:
        return
    typer.echo()
    print_next_command(["open", out / "report.html"])
    inspect_options = cli_options.RunInspectOptions(data=out, outcome="incorrect")
    print_next_command(local_command_line(inspect_options, "fsdpo-bench", "inspect"))


@command(app, cli_options.RunInspectOptions)
def inspect(options: cli_options.RunInspectOptions) -> None:
    """Show problems of a run."""
    records = record_printing.matching_records(options)
    if options.columns:
        rows = record_printing.selected_fields(records, options)
        if options.as_json:
            for row in rows:
                typer.echo(json.dumps(row, ensure_ascii=False))
        else:
            record_printing.print_fields(rows, options.count)
        return
    if options.as_json:
        for record in records:
            typer.echo(json.dumps(record.to_json(), ensure_ascii=False))
        return
    record_printing.print_records(records, options.count, options.samples)


@command(app, cli_options.RunDiffOptions)
def diff(options: cli_options.RunDiffOptions) -> None:
    """Compare two runs."""
    from fsdpo_bench.report.terminal import report_comparison

    report_comparison(
        options.run_a,
        options.run_b,
        options,
        html=options.html,
        count=options.show,
        columns=options.columns,
        as_json=options.as_json,
    )
    if options.html is not None and not options.as_json:
        typer.echo()
        print_next_command(["open", options.html])


@command(app, cli_options.BaselinesOptions)
def baselines(options: cli_options.BaselinesOptions) -> None:
    """Compare decoders with baselines."""
    from fsdpo_bench.results.baselines import compare_choices

    rows = compare_choices(options.runs, options.likelihood)
    if options.as_json:
        tables.print_json([asdict(row) for row in rows])
    else:
        printing.print_baselines(rows, [run.name for run in options.runs])


@command(app, cli_options.ResponseGradeOptions)
def grade(options: cli_options.ResponseGradeOptions) -> None:
    """Grade existing responses."""
    from fsdpo_data.answers import GradingRequest
    from fsdpo_data.grading.pool import grade_requests

    if (options.data is None) == (options.explain is None):
        raise InputError(
            "either `data` or `explain` is required. Give a run or a file of responses, or a gold "
            "answer with a response to explain."
        )
    is_run = options.data is not None and options.data.is_dir()
    file_options = ("question_field", "gold_field", "response_field", "gold")
    kind = "file" if options.data is not None and not is_run else "run or pair of answers"
    check_read_options(options, "input", [kind], {"file": file_options})
    if options.judge is not None and not is_run:
        raise InputError(
            "a judge decides the undecided answers of a run. Give the directory of a run. For a "
            "file with questions, use `fsdpo-bench run --engine replay --replay FILE`.",
            field="judge",
            value=options.judge,
        )
    tolerance = options.tolerance
    if tolerance is None and options.task is not None:
        tolerance = get_task(options.task).tolerance
    if options.explain is not None:
        gold, response = options.explain
        [verdict] = grade_requests([GradingRequest(gold, response, tolerance=tolerance)])
        printing.print_verdict(gold, verdict)
    elif options.data is not None and is_run:
        _grade_run(options.data, options)
    elif options.data is not None:
        _grade_file(options.data, options, tolerance)


def _grade_run(run: Path, options: cli_options.ResponseGradeOptions) -> None:
    from fsdpo_bench.runs.regrade import regrade_run
    from fsdpo_data.engines.answer_judge import resolve_answer_judge

    if options.out is None:
        raise InputError(
            "missing. Grading a run writes a new run: name its directory.", field="out"
        )
    judge = resolve_answer_judge(options)
    with show_progress() as progress:
        regrade_run(
            run,
            options.out,
            ks=options.k,
            aggregate=options.aggregate,
            workers=options.workers,
            progress=progress,
            resume=options.resume,
            answer_judge=judge,
        )
    _report(options.out, as_json=options.as_json)


def _grade_file(
    file: Path, options: cli_options.ResponseGradeOptions, tolerance: float | None
) -> None:
    from fsdpo_data.problems.golds import describe_solutions
    from fsdpo_data.recorded.outputs import grade_outputs, read_outputs, summarize_by_series

    if options.out is not None and (options.out.suffix != ".jsonl" or options.out.exists()):
        raise InputError(
            "expected a new file ending in .jsonl for the verdicts.", field="out", value=options.out
        )
    recorded = read_outputs(file, options)
    if solutions := describe_solutions([response.gold for response in recorded]):
        _warn(solutions)
    responses = grade_outputs(recorded, tolerance, options.workers)
    if options.out is not None:
        write_text(options.out, "".join(json.dumps(row.to_row()) + "\n" for row in responses))
    series = summarize_by_series(responses)
    if options.as_json:
        tables.print_json(series)
        return
    printing.print_series(series)
    disputed = [response for response in responses if response.disagrees_with_publisher]
    printing.print_disputed(disputed, options.show)


@command(app, cli_options.ReportOptions)
def report(options: cli_options.ReportOptions) -> None:
    """Write the reports again."""
    _report(options.data, as_json=options.as_json, megabytes=options.megabytes)


@command(app, cli_options.ResultsPushOptions)
def push(options: cli_options.ResultsPushOptions) -> None:
    """Push results to the Hub."""
    from fsdpo_bench.publish import push as hub

    plan = hub.plan_push(options.data, options.name)
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


@command(app, RerankOptions)
def rerank(options: RerankOptions) -> None:
    """Compare best-of-N and votes on recorded samples."""
    from fsdpo_bench.rerank.measure import measure_reranking

    with show_progress() as progress:
        result = measure_reranking(options, progress)
    if options.as_json:
        tables.print_json(result)
    else:
        rerank_printing.print_reranking(result)


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


@command(app, cli_options.TaskValidateOptions)
def validate(options: cli_options.TaskValidateOptions) -> None:
    """Check the rows and gold answers of benchmarks."""
    from fsdpo_bench.runs.validate import validate_task

    selected_tasks = select_tasks(options.suite, options.task)
    reports = []
    with show_progress() as progress:
        progress.phase("validate", len(selected_tasks))
        for task in selected_tasks:
            reports.append(validate_task(task, options.data))
            progress.advance(1)
    if options.as_json:
        tables.print_json([report.as_dict() for report in reports])
    else:
        printing.print_reports(reports)
    raise typer.Exit(0 if all(report.has_passed for report in reports) else 1)


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
        for _, stages in stages_by_recipe:
            run_stages(stages, typer.echo)
        recipe_printing.print_costs(list(merge_stages(stages for _, stages in stages_by_recipe)))
        typer.echo()
    is_complete = len(recipes) > 1 and not options.row
    recipe_printing.print_paper_tables(
        paper_cells(recipes, closed_models=is_complete and not options.smoke)
    )


def main() -> None:
    """Run ``fsdpo-bench``."""
    run_app(app)
