"""What a person sees: progress bars on a terminal, a line now and then in a log, errors, tables."""

import logging
import os
import shlex
import sys
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

from fsdpo_data import __version__
from fsdpo_data.cli.help import HelpGroup
from fsdpo_data.core.errors import FsdpoError


def new_app(name: str, help: str) -> typer.Typer:
    """Return a command line with what all of ours have: ``-h``, ``--version``, completion."""
    app = typer.Typer(
        name=name,
        help=help,
        cls=HelpGroup,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def root(
        version: Annotated[
            bool,
            typer.Option("--version", callback=_version, is_eager=True, help="Say which release."),
        ] = False,
    ) -> None:
        pass

    return app


def _version(show: bool) -> None:
    if show:
        typer.echo(f"fsdpo {__version__}")
        raise typer.Exit


def print_next_command(*line: object) -> None:
    """Print the command that is next, as a shell takes it."""
    typer.echo(f"next: {shlex.join(map(str, line))}")


def run_app(app: Callable[[], object]) -> NoReturn:
    """Run a command line; a user's mistake ends in one message and exit code 1."""
    # Before torch is imported. Its threads spin where they wait by default, so two jobs that
    # share the cores slow each other ten times and more; asleep, they take turns.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # What our packages log; it goes to the log of a library's caller otherwise.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LevelPrefixFormatter())
    for name in ("fsdpo_data", "fsdpo_train", "fsdpo_bench"):
        logging.getLogger(name).handlers = [handler]
    try:
        app()
    except BrokenPipeError:  # `… | head` has seen enough
        sys.stderr.close()
        sys.exit(0)
    except (FsdpoError, OSError) as error:  # of the system: such as a folder closed to the user
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)


class _LevelPrefixFormatter(logging.Formatter):
    """Calls a warning one; what is only told stands as it is."""

    def format(self, record: logging.LogRecord) -> str:
        told = super().format(record)
        return f"warning: {told}" if record.levelno >= logging.WARNING else told
