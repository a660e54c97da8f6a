"""The command of ``fsdpo-data`` that serves a process reward model."""

from functools import partial

import typer

from fsdpo_data.cli.commands import app
from fsdpo_data.cli.options import command
from fsdpo_data.serving.server import ServeOptions, run_server


@command(app, ServeOptions, panel="Serve")
def serve(options: ServeOptions) -> None:
    """Serve a process reward model until Ctrl-C or SIGTERM."""
    run_server(options, partial(typer.echo, err=True))
