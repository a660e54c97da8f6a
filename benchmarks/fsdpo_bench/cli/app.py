"""The ``fsdpo-bench`` command line. Heavy libraries load inside the commands that need them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fsdpo_bench.cli.report_commands import register as register_reports
from fsdpo_bench.cli.run_commands import register as register_runs
from fsdpo_data.cli.choices import Device, Dtype, PrmEngine
from fsdpo_data.cli.console import run_app
from fsdpo_data.cli.options import AsJson
from fsdpo_data.core.errors import InputError

app = typer.Typer(
    name="fsdpo-bench",
    help="Measure mathematical reasoning: benchmarks, grading, comparison.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

Suite = Annotated[
    str | None, typer.Option(help="`in-domain`, `ood`, `all` or `smoke`.  [default: all]")
]
TaskNames = Annotated[
    list[str] | None, typer.Option("--task", help="One benchmark; may be given several times.")
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Directory with a folder for each benchmark, or the file of one.  [default: the Hub]"
    ),
]


@app.callback()
def _commands() -> None:
    pass


@app.command("list", epilog="**Example** `fsdpo-bench list`")
def list_tasks() -> None:
    """List the benchmarks and the suites."""
    from fsdpo_bench.cli.show import print_tasks

    print_tasks()


@app.command(
    epilog="**Examples** `fsdpo-bench validate --suite all --data benchmarks`, "
    "`fsdpo-bench validate --task ocw --data ocw_test.jsonl`"
)
def validate(
    suite: Suite = None, task: TaskNames = None, data: Data = None, as_json: AsJson = False
) -> None:
    """Check rows, digests and golds of benchmarks, without a model.

    Every gold must be right about itself and wrong about nonsense. What is known to be odd is
    listed with the reason; anything else ends in exit code 1.
    """
    from fsdpo_bench.cli.show import print_reports
    from fsdpo_bench.tasks.table import select_tasks
    from fsdpo_bench.tasks.validate import validate_task
    from fsdpo_data.core.progress import progress

    tasks = select_tasks(suite, task)
    reports = []
    with progress() as shown:
        shown.phase("validate", len(tasks))
        for each in tasks:
            reports.append(validate_task(each, data))
            shown.advance(1)
    if as_json:
        rows = [report.as_dict() for report in reports]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        print_reports(reports)
    raise typer.Exit(0 if all(report.passed for report in reports) else 1)


_GRADE_EXAMPLES = """
**Examples**

- `fsdpo-bench grade --explain '\\frac12' 'The answer is 0.5'`
- `fsdpo-bench grade --explain 4.47e14 4.45e14 --tolerance 0.01`
- `fsdpo-bench grade outputs.jsonl` — rows with `answer` and `response`, or the files of OpenAI,
  ToRA, Qwen, Abel, NeMo-Skills or lm-evaluation-harness as they are
"""


@app.command(epilog=_GRADE_EXAMPLES)
def grade(
    file: Annotated[
        Path | None, typer.Argument(help="Responses made elsewhere, with their golds.")
    ] = None,
    explain: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="GOLD PRED", help="Judge one answer or response, and say why."),
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="Benchmark whose grading applies (`ocw` is tolerant).")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Relative error that a number may have, e.g. 0.01.")
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="Differing verdicts to print.")] = 10,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes.  [default: the cores at hand]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judge responses that are there already: one, with an explanation, or a file of them."""
    if (file is None) == (explain is None):
        raise InputError("expected a FILE of responses, or --explain GOLD PRED.")
    if tolerance is not None and not 0 <= tolerance < 1:
        raise InputError(f"--tolerance {tolerance}: expected at least 0 and less than 1.")
    if tolerance is None and task is not None:
        tolerance = _tolerance_of(task)
    if explain is not None:
        _explain(*explain, tolerance)
    elif file is not None:
        _grade_file(file, tolerance, show, workers, as_json)


def _tolerance_of(task: str) -> float | None:
    from fsdpo_bench.tasks.table import get_task

    return get_task(task).tolerance


def _explain(gold: str, response: str, tolerance: float | None) -> None:
    from fsdpo_bench.cli.show import print_verdict
    from fsdpo_data.answers.grader import MathGrader

    [verdict] = MathGrader(tolerance).grade([(gold, response)])
    print_verdict(gold, verdict)


def _grade_file(
    file: Path, tolerance: float | None, show: int, workers: int | None, as_json: bool
) -> None:
    from fsdpo_bench.cli.show import print_disputed, print_series
    from fsdpo_bench.recorded.outputs import read_outputs
    from fsdpo_bench.recorded.score import by_series, score

    scored = score(read_outputs(file), tolerance, workers)
    series = by_series(scored)
    if as_json:
        typer.echo(json.dumps([each.as_dict() for each in series], indent=2))
        return
    print_series(series)
    print_disputed([each for each in scored if each.disputed], show)


_PRM_EXAMPLES = """
**Examples**

- `fsdpo-bench prm --dataset runs/scored` — a dataset that `fsdpo-data score` made
- `fsdpo-bench prm --prm runs/prm --dataset runs/test` — score it here, in memory
- `fsdpo-bench prm --likelihood tiny --dataset runs/test` — the policy's own confidence, to compare
- `fsdpo-bench prm --prm runs/prm --template alpaca --first-errors gsm8k.json`
"""


@app.command(epilog=_PRM_EXAMPLES)
def prm(
    prm: Annotated[
        str | None, typer.Option("--prm", help="Process reward model: a directory or `org/name`.")
    ] = None,
    likelihood: Annotated[
        str | None,
        typer.Option(help="Instead of --prm: a policy, whose probability of a step is its reward."),
    ] = None,
    dataset: Annotated[
        Path | None, typer.Option(help="A sealed dataset: ranking, best-of-N, step truth.")
    ] = None,
    first_errors: Annotated[
        list[Path] | None, typer.Option(help="ProcessBench file; may be given several times.")
    ] = None,
    template: Annotated[
        str | None, typer.Option(help="Prompt the model was trained on; for --first-errors.")
    ] = None,
    tune: Annotated[
        float, typer.Option(min=0.01, max=0.9, help="Share of the rows that set the threshold.")
    ] = 0.2,
    engine: Annotated[PrmEngine, typer.Option(help="What scores.")] = PrmEngine.auto,
    device: Annotated[Device, typer.Option(help="For `--engine transformers`.")] = Device.auto,
    dtype: Annotated[Dtype, typer.Option(help="Precision.")] = Dtype.auto,
    as_json: AsJson = False,
) -> None:
    """Measure a process reward model: does it rank solutions, does it find the first error?"""
    from fsdpo_bench.cli.show_prm import print_prm
    from fsdpo_bench.prm.measure import measure_prm
    from fsdpo_data.engines.load import load_likelihood, load_scorer
    from fsdpo_data.engines.options import ScorerOptions

    if prm and likelihood:
        raise InputError("--prm and --likelihood: expected one of them, not both.")
    options = ScorerOptions(engine=engine.value, device=device.value, dtype=dtype.value)
    make_scorer = None
    if prm:
        make_scorer = partial(load_scorer, prm, options)
    elif likelihood:
        make_scorer = partial(load_likelihood, likelihood, options)
    measured = measure_prm(make_scorer, dataset, first_errors or [], template, tune)
    if as_json:
        typer.echo(json.dumps(measured.as_dict(), indent=2))
    else:
        print_prm(measured)


register_reports(app)
register_runs(app)


def main() -> None:
    """Run ``fsdpo-bench``."""
    run_app(app)
