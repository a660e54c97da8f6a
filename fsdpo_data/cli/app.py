"""The ``fsdpo-data`` command line. Heavy libraries load inside the commands that need them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fsdpo_data.cli.console import new_app, run_app
from fsdpo_data.cli.decontaminate_command import register as register_decontaminate
from fsdpo_data.cli.hub_commands import register as register_hub
from fsdpo_data.cli.interop_commands import register as register_interop
from fsdpo_data.cli.options import SAMPLER, command_of, option
from fsdpo_data.cli.stage_commands import register as register_stages
from fsdpo_data.cli.version_commands import register as register_versions
from fsdpo_data.stages.sample import BuildOptions

app = new_app("fsdpo-data", "Step-annotated maths reasoning data: build it, check it, look at it.")


_BUILD_EXAMPLES = """
**Examples**

- `fsdpo-data build` — the embedded model on embedded problems, offline
- `fsdpo-data build --model qwen2-7b-sft --problems gsm8k --problems math --samples 32`
- `fsdpo-data build --model ./my-sft --template alpaca --problems train.jsonl --limit 200`
- `fsdpo-data build --prm runs/prm --out runs/pairs` — through to sealed preference pairs
- `RAY_ADDRESS=head:6379 fsdpo-data build --model qwen2-7b-sft --engine ray` — on every GPU there
- `fsdpo-data build --engine scripted --replay runs/a/completions.jsonl --out runs/b`
"""


_BUILD = {
    "model": option(str, "Short name, `org/name[@revision]` on the Hub, or a directory."),
    "problems": option(
        list[str],
        "`embedded`, `gsm8k`, `math`, `math-step-dpo-10k`, `org/name[@revision][:config]`, or a "
        "file or directory; may be given several times.",
    ),
    "split": option(str, "Split of the problems."),
    "limit": option(int | None, "Problems at most; the seed draws them."),
    "samples": option(int, "Solutions per problem (the paper's M)."),
    "temperature": option(float, "0 is greedy."),
    "top_p": option(float, "Nucleus mass."),
    "max_tokens": option(int, "Tokens per solution at most."),
    "template": option(str | None, "Prompt template.  [default: the model's own]"),
    "segmenter": option(str, "`auto`, `step-marker`, `newline` or `blank-line`."),
    **SAMPLER,
    "tensor_parallel_size": option(int, "GPUs that share one copy of the model (vLLM)."),
    "data_parallel_size": option(int, "Copies of the model, each on its own GPUs (vLLM)."),
    "out": option(Path | None, "Run directory.  [default: runs/MODEL-DIGEST]"),
    "prm": option(str | None, "Process reward model: score the solutions too, and join pairs."),
    "top": option(int, "With --prm: solutions on each side of the pairs (the paper's T)."),
}


@app.command(epilog=_BUILD_EXAMPLES)
@command_of(BuildOptions, _BUILD)
def build(options: BuildOptions) -> None:
    """Sample solutions, cut them into steps, grade and label them, seal the dataset.

    Stopped at any moment, the same command with `--resume` goes on where it was.
    """
    from fsdpo_data.cli.build import run_build

    run_build(options)


@app.command(epilog="**Example** `fsdpo-data validate runs/a`")
def validate(
    directory: Annotated[Path, typer.Argument(help="A sealed dataset.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest instead.")] = False,
) -> None:
    """Check every file, row and count of a dataset against the schema and its manifest."""
    from fsdpo_data.dataset.validate import validate as check

    manifest = check(directory)
    if as_json:
        typer.echo(json.dumps(manifest, indent=2, ensure_ascii=False))
        return
    rows = manifest["rows"]
    typer.echo(
        f"{directory} is valid: schema {manifest['schema_version']}, {rows['problems']:,} problems,"
        f" {rows['solutions']:,} solutions, digest {manifest['digest']}"
    )


@app.command(
    epilog="**Examples** `fsdpo-data inspect runs/a --count 3 --samples 2`, "
    "`fsdpo-data inspect runs/a --outcome incorrect`, `fsdpo-data inspect runs/a --problem 3fa9`"
)
def inspect(
    directory: Annotated[Path, typer.Argument(help="A sealed dataset.")],
    count: Annotated[int, typer.Option(min=0, help="Problems to show.")] = 2,
    samples: Annotated[int, typer.Option(min=1, help="Solutions to show of each.")] = 3,
    problem: Annotated[str | None, typer.Option(help="Id of one problem, or its start.")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="Only solutions that are `correct`, `incorrect` …")
    ] = None,
    seed: Annotated[int, typer.Option(help="Draws the problems.")] = 0,
) -> None:
    """Show statistics, then problems with their step-marked solutions."""
    from fsdpo_data.cli.inspect import pick_problems, print_problem
    from fsdpo_data.cli.summary import print_summary
    from fsdpo_data.dataset.manifest import read_manifest

    print_summary(read_manifest(directory), str(directory))
    if count == 0:
        return
    typer.echo()
    shown = pick_problems(directory, problem=problem, count=count, outcome=outcome, seed=seed)
    for each in shown:
        print_problem(each, samples)


register_stages(app)
register_hub(app)
register_interop(app)
register_versions(app)
register_decontaminate(app)


def main() -> None:
    """Run ``fsdpo-data``."""
    run_app(app)
