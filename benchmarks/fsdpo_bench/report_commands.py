"""``fsdpo-bench compare``, ``report`` and ``recipe``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fsdpo_data.errors import InputError

Run = Annotated[Path, typer.Argument(help="A directory that `fsdpo-bench run` wrote.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

_COMPARE_EXAMPLES = """
**Examples**

- `fsdpo-bench compare runs/sft runs/full-step` — every decoder that both runs have
- `fsdpo-bench compare runs/sft runs/full-step --decoder greedy --show 20`
- `fsdpo-bench compare runs/sft runs/sft --decoder greedy --decoder-b bon@5:min`
"""


def compare(
    run_a: Annotated[Path, typer.Argument(help="The run that the other is held against.")],
    run_b: Annotated[Path, typer.Argument(help="The other run.")],
    task: Annotated[str | None, typer.Option(help="Only this benchmark.")] = None,
    decoder: Annotated[
        str | None, typer.Option(help="Decoder of RUN_A.  [default: all that both have]")
    ] = None,
    decoder_b: Annotated[
        str | None, typer.Option(help="Decoder of RUN_B.  [default: --decoder]")
    ] = None,
    common: Annotated[
        bool, typer.Option("--common", help="Compare the problems both have, if others differ.")
    ] = False,
    show: Annotated[int, typer.Option(min=0, help="Changed problems to print.")] = 10,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare two runs problem by problem: is one better, and where?

    The interval is a paired bootstrap, p is McNemar's exact test; both are by base problem where
    problems share one.
    """
    from fsdpo_bench.compare import Wanted, compare_runs
    from fsdpo_bench.show_report import print_comparison
    from fsdpo_bench.tasks import get_task

    wanted = Wanted(get_task(task).name if task else None, decoder, decoder_b, common, seed)
    compared = compare_runs(run_a, run_b, wanted)
    if not as_json:
        print_comparison(compared, show)
        return
    found = {
        "deltas": [delta.as_dict() for delta in compared.deltas],
        "changed": [asdict(change) for change in compared.changed],
        "notes": list(compared.notes),
    }
    typer.echo(json.dumps(found, indent=2))


_REPORT_EXAMPLES = """
**Examples** `fsdpo-bench report runs/bench`, `fsdpo-bench report runs/bench --megabytes 100`
"""


def report(
    run: Run,
    megabytes: Annotated[
        float, typer.Option(min=0.1, help="Text of problems and solutions in report.html.")
    ] = 16,
    as_json: AsJson = False,
) -> None:
    """Write results.json, report.md and report.html of a finished run again."""
    from fsdpo_bench.report import write_report
    from fsdpo_bench.show_report import print_results

    if not run.is_dir():
        raise InputError(f"{run}: expected the directory that `fsdpo-bench run --out` wrote.")
    results = write_report(run, int(megabytes * 1_000_000))
    if as_json:
        typer.echo(json.dumps(results, indent=2))
        return
    print_results(results)
    typer.echo(f"look at it: {run / 'report.html'}")


def register(app: typer.Typer) -> None:
    """Add the commands to ``fsdpo-bench``."""
    app.command(epilog=_COMPARE_EXAMPLES)(compare)
    app.command(epilog=_REPORT_EXAMPLES)(report)
