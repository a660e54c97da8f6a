"""``fsdpo-bench compare``, ``report`` and ``recipe``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fsdpo_data.cli.options import AsJson
from fsdpo_data.core.errors import InputError

Run = Annotated[Path, typer.Argument(help="A directory that `fsdpo-bench run` wrote.")]

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
    from fsdpo_bench.cli.show_report import print_comparison
    from fsdpo_bench.results.compare import Wanted, compare_runs
    from fsdpo_bench.tasks.table import get_task

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
    """Write results.json, report.md, report.html and the card of a finished run again."""
    from fsdpo_bench.cli.show_report import print_results
    from fsdpo_bench.report.write import write_report

    if not run.is_dir():
        raise InputError(f"{run}: expected the directory that `fsdpo-bench run --out` wrote.")
    results = write_report(run, int(megabytes * 1_000_000))
    if as_json:
        typer.echo(json.dumps(results, indent=2))
        return
    print_results(results)
    typer.echo(f"look at it: {run / 'report.html'}")


_RECIPE_EXAMPLES = """
**Examples**

- `fsdpo-bench recipe` — the recipes: one per row of the paper's tables, and `embedded`
- `fsdpo-bench recipe qwen2-7b-sft-full-step-dpo --dry-run` — commands, tokens, GPU-hours
- `fsdpo-bench recipe embedded` — run it, here, on a laptop
- `fsdpo-bench recipe qwen2-7b-sft-full-step-dpo --stage samples`
"""


def recipe(
    name: Annotated[
        str | None, typer.Argument(help="Name of a recipe, or a TOML file of your own.")
    ] = None,
    stage: Annotated[
        list[str] | None, typer.Option(help="Only this stage; may be given several times.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print commands and estimates, run nothing.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the plan as JSON, run nothing.")
    ] = False,
) -> None:
    """Run a row of the paper's tables, stage by stage; those that are done are passed over."""
    from fsdpo_bench.cli.show_recipe import plan_as_dict, print_plan, print_recipes
    from fsdpo_bench.recipes.recipe import load_recipe, recipe_names, run_stages

    if name is None:
        print_recipes([load_recipe(each) for each in recipe_names()])
        return
    found = load_recipe(name)
    names = [each.name for each in found.stages]
    for unknown in set(stage or ()) - set(names):
        raise InputError(f"no stage {unknown!r} in {name}: expected one of {', '.join(names)}.")
    stages = [each for each in found.stages if not stage or each.name in stage]
    if as_json:
        typer.echo(json.dumps(plan_as_dict(found, stages), indent=2))
    elif dry_run:
        print_plan(found, stages)
    else:
        run_stages(stages, typer.echo)


def register(app: typer.Typer) -> None:
    """Add the commands to ``fsdpo-bench``."""
    app.command(epilog=_COMPARE_EXAMPLES)(compare)
    app.command(epilog=_REPORT_EXAMPLES)(report)
    app.command(epilog=_RECIPE_EXAMPLES)(recipe)
