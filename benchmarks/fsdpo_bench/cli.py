"""The ``fsdpo-bench`` command line. Heavy libraries load inside the commands that need them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsdpo_data.console import run_app

app = typer.Typer(
    name="fsdpo-bench",
    help="Measure mathematical reasoning: benchmarks, grading, comparison.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

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
    from fsdpo_bench.show import print_tasks

    print_tasks()


def main() -> None:
    """Run ``fsdpo-bench``."""
    run_app(app)


if __name__ == "__main__":
    main()
