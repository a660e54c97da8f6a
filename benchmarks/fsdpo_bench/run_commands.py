"""The commands of ``fsdpo-bench`` that make runs and look at them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from fsdpo_data.choices import Device, Dtype, Engine

_RUN_EXAMPLES = """
**Examples**

- `fsdpo-bench run --suite smoke --model tiny` — the embedded world: offline, a minute
- `fsdpo-bench run --suite ood --model qwen2-7b-sft --decode greedy,sc --k 5 --k 15`
- `fsdpo-bench run --task math --model ./policy --decode greedy,sc,bon,sbs --k 15 --prm ./prm`
  `--b1 5 --b2 1 --b2 3` — the paper's settings
- `fsdpo-bench run --engine scripted --replay outputs.jsonl --decode sc,bon --k 8` — responses
  made elsewhere, through the same decoders and graders
"""


def run(
    suite: Annotated[str | None, typer.Option(help="`in-domain`, `ood`, `all` or `smoke`.")] = None,
    task: Annotated[
        list[str] | None, typer.Option("--task", help="One benchmark; may be given several times.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Short name, org/name[@revision] or a directory.")
    ] = None,
    decode: Annotated[
        list[str] | None,
        typer.Option(help="`greedy`, `sc`, `weighted`, `bon`, `sbs`, or several: `greedy,sc`."),
    ] = None,
    k: Annotated[
        list[int] | None,
        typer.Option("--k", help="Samples to decide among; may be given several times.  [5]"),
    ] = None,
    prm: Annotated[
        str | None, typer.Option("--prm", help="Process reward model: a directory or `org/name`.")
    ] = None,
    aggregate: Annotated[
        str, typer.Option(help="Step rewards of a sample to one: `mean`, `min`, `prod`, `last`.")
    ] = "min",
    b1: Annotated[int, typer.Option("--b1", help="Beam search: next steps sampled.")] = 5,
    b2: Annotated[
        list[int] | None,
        typer.Option("--b2", help="Beam search: solutions kept; one search for each.  [1]"),
    ] = None,
    first_keep: Annotated[
        Literal["b1", "b2"],
        typer.Option(help="First steps kept: Algorithm 1 says b1, its text b2."),
    ] = "b1",
    beam_aggregate: Annotated[
        str, typer.Option(help="What ranks partial solutions; `last` is the newest step.")
    ] = "last",
    max_steps: Annotated[int, typer.Option(help="Beam search: steps at most (C).")] = 32,
    step_tokens: Annotated[int, typer.Option(help="Beam search: tokens of a step at most.")] = 256,
    engine: Annotated[
        Engine, typer.Option(help="`auto` takes vLLM where it can run, else transformers.")
    ] = Engine.auto,
    replay: Annotated[
        Path | None,
        typer.Option(help="For `--engine scripted`: responses, or completions of a build."),
    ] = None,
    series: Annotated[
        str | None, typer.Option(help="Which model of the --replay file, where it has several.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Directory with a folder for each benchmark.  [default: the Hub]"),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="The first problems of each only.")] = None,
    template: Annotated[
        str | None, typer.Option(help="Prompt template.  [default: the model's]")
    ] = None,
    segmenter: Annotated[str, typer.Option(help="What a step is.")] = "auto",
    temperature: Annotated[float, typer.Option(help="Of samples; greedy has none.")] = 0.8,
    top_p: Annotated[float, typer.Option(help="Nucleus mass kept.")] = 1.0,
    max_tokens: Annotated[int, typer.Option(help="Tokens per solution at most.")] = 1024,
    seed: Annotated[int, typer.Option(help="Sample i depends on seed, prompt, i.")] = 0,
    device: Annotated[Device, typer.Option(help="For `--engine transformers`.")] = Device.auto,
    dtype: Annotated[Dtype, typer.Option(help="Precision; `auto` is the checkpoint's.")] = (
        Dtype.auto
    ),
    engine_arg: Annotated[
        list[str] | None,
        typer.Option(help="KEY=JSON passed on to `vllm.LLM`; may be given several times."),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Problems per durable batch.  [default: by engine]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that grade.  [default: the cores at hand]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory.  [default: runs/bench-MODEL-DIGEST]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Decode benchmarks with a model, grade, and report accuracy with its uncertainty and cost.

    One set of samples serves every decoder that chooses among samples, at every K. Stopped at any
    moment, the same command with `--resume` goes on.
    """
    from fsdpo_bench.decode.beam import BeamSpec
    from fsdpo_bench.jobs import RunOptions, run_job
    from fsdpo_bench.plan import make_plan
    from fsdpo_data.run_options import engine_arguments

    plan = make_plan(
        decode or ["greedy"],
        k or [5],
        aggregate,
        [
            BeamSpec(b1, each, max_steps, step_tokens, first_keep, beam_aggregate)
            for each in b2 or [1]
        ],
    )
    options = RunOptions(
        plan=plan,
        out=out,
        suite=suite,
        tasks=tuple(task or ()),
        data=data,
        limit=limit,
        model=model,
        template=template,
        prm=prm,
        engine=engine.value,
        replay=replay,
        series=series,
        device=device.value,
        dtype=dtype.value,
        engine_args=engine_arguments(engine_arg),
        temperature=temperature,
        top_p=top_p,
        max_tokens=max_tokens,
        segmenter=segmenter,
        seed=seed,
        batch=batch,
        workers=workers,
        resume=resume,
    )
    finish(run_job(options), as_json=as_json)


def finish(out: Path, *, as_json: bool) -> None:
    """Report on a run whose records are complete, and say what to do next."""
    from fsdpo_bench.report import write_report
    from fsdpo_bench.show_report import print_results

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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Grade and decide again what a run has decoded, without its model."""
    from fsdpo_bench.regrade import regrade_run
    from fsdpo_data.console import progress

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
    from fsdpo_bench.show_run import Filter, matching, print_records

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
