"""The commands of ``fsdpo-bench`` that make runs and look at them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from fsdpo_bench.runs.options import RunOptions
from fsdpo_data.cli.options import SAMPLER, AsJson, command_of, option

_RUN_EXAMPLES = """
**Examples**

- `fsdpo-bench run --suite smoke --model tiny` — the embedded world: offline, a minute
- `fsdpo-bench run --suite ood --model qwen2-7b-sft --decode greedy,sc --k 5 --k 15`
- `fsdpo-bench run --task math --model ./policy --decode greedy,sc,bon,sbs --k 15 --prm ./prm`
  `--b1 5 --b2 1 --b2 3` — the paper's settings
- `fsdpo-bench run --engine scripted --replay outputs.jsonl --decode sc,bon --k 8` — responses
  made elsewhere, through the same decoders and graders
"""


_RUN = {
    "suite": option(str | None, "`in-domain`, `ood`, `all` or `smoke`."),
    "task": option(list[str], "One benchmark; may be given several times."),
    "data": option(Path | None, "Directory with a folder for each benchmark.  [default: the Hub]"),
    "limit": option(int | None, "The first problems of each only."),
    "model": option(str | None, "Short name, `org/name[@revision]` or a directory."),
    "template": option(str | None, "Prompt template.  [default: the model's]"),
    "segmenter": option(str, "What a step is."),
    "decode": option(
        list[str], "`greedy`, `sc`, `weighted`, `bon`, `sbs`, or several: `greedy,sc`."
    ),
    "k": option(list[int], "Samples to decide among; may be given several times.", "--k"),
    "prm": option(str | None, "Process reward model: a directory or `org/name`."),
    "aggregate": option(str, "Step rewards of a sample to one: `mean`, `min`, `prod`, `last`."),
    "b1": option(int, "Beam search: next steps sampled.", "--b1"),
    "b2": option(list[int], "Beam search: solutions kept; one search for each.", "--b2"),
    "first_keep": option(
        Literal["b1", "b2"], "First steps kept: Algorithm 1 says b1, its text b2."
    ),
    "beam_aggregate": option(str, "What ranks partial solutions; `last` is the newest step."),
    "max_steps": option(int, "Beam search: steps at most (C)."),
    "step_tokens": option(int, "Beam search: tokens of a step at most."),
    "temperature": option(float, "Of samples; greedy has none."),
    "top_p": option(float, "Nucleus mass kept."),
    "max_tokens": option(int, "Tokens per solution at most."),
    **SAMPLER,
    "replay": option(Path | None, "For `--engine scripted`: responses, or completions of a build."),
    "series": option(str | None, "Which model of the --replay file, where it has several."),
    "out": option(Path | None, "Run directory.  [default: runs/bench-MODEL-DIGEST]"),
    "as_json": AsJson,
}


@command_of(RunOptions, _RUN)
def run(options: RunOptions) -> None:
    """Decode benchmarks with a model, grade, and report accuracy with its uncertainty and cost.

    One set of samples serves every decoder that chooses among samples, at every K. Stopped at any
    moment, the same command with `--resume` goes on.
    """
    from fsdpo_bench.runs.start import run_job

    finish(run_job(options), as_json=options.as_json)


def finish(out: Path, *, as_json: bool) -> None:
    """Report on a run whose records are complete, and say what to do next."""
    from fsdpo_bench.cli.show_report import print_results
    from fsdpo_bench.report.write import write_report

    results = write_report(out)
    if as_json:
        typer.echo(json.dumps(results, indent=2))
        return
    print_results(results)
    typer.echo(f"\nnext: open {out / 'report.html'}, or fsdpo-bench show {out} --verdict incorrect")


_REGRADE_EXAMPLES = """
**Examples**

- `fsdpo-bench regrade runs/bench --out runs/regraded` — with the grader as it is now
- `fsdpo-bench regrade runs/bench --out runs/curve --k 1 --k 2 --k 4 --k 8 --k 16`
"""


def regrade(
    directory: Annotated[Path, typer.Argument(help="A run; it is left as it is.")],
    out: Annotated[Path, typer.Option(help="Directory of the new run.")],
    k: Annotated[
        list[int] | None,
        typer.Option("--k", help="Samples to decide among.  [default: as it was]"),
    ] = None,
    aggregate: Annotated[
        str | None, typer.Option(help="Step rewards of a sample to one.  [default: as it was]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that grade.  [default: the cores at hand]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Grade and decide again what a run has decoded, without its model."""
    from fsdpo_bench.runs.regrade import regrade_run
    from fsdpo_data.core.progress import progress

    with progress() as shown:
        regrade_run(directory, out, k or (), aggregate, workers, shown)
    finish(out, as_json=as_json)


_SHOW_EXAMPLES = """
**Examples**

- `fsdpo-bench show runs/bench 5e0c` — a problem, by the beginning of its id
- `fsdpo-bench show runs/bench --verdict incorrect --decoder bon@5:min --subject Algebra`
"""


def show(
    directory: Annotated[Path, typer.Argument(help="A run.")],
    problem: Annotated[
        str | None, typer.Argument(metavar="ID", help="The beginning of a problem's id.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Only of this benchmark.")] = None,
    verdict: Annotated[
        str | None,
        typer.Option(help="`correct`, `incorrect`, `no_answer`, `gold_unparsed`, `timed_out`."),
    ] = None,
    decoder: Annotated[
        str | None, typer.Option(help="Whose verdict.  [default: the first of the run]")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="Only of this subject.")] = None,
    level: Annotated[str | None, typer.Option(help="Only of this level.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Problems to show.")] = 3,
    samples: Annotated[int, typer.Option(min=0, help="Samples of each to show.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records.")] = False,
) -> None:
    """Show problems of a run: what was asked, answered and decided, step by step."""
    from fsdpo_bench.cli.show_run import Filter, matching, print_records

    wanted = Filter(problem, task, verdict, decoder, subject, level)
    found = matching(directory, wanted)
    if as_json:
        for record in found:
            typer.echo(json.dumps(record, ensure_ascii=False))
        return
    print_records(found, count, samples)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog=_RUN_EXAMPLES)(run)
    app.command(epilog=_REGRADE_EXAMPLES)(regrade)
    app.command(epilog=_SHOW_EXAMPLES)(show)
