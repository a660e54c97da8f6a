"""The common part of the three command lines: options, log output, errors and exit codes."""

import io
import logging
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, NoReturn

import typer

from fsdpo_data import __version__
from fsdpo_data.cli.help import HelpGroup
from fsdpo_data.core.errors import FsdpoError
from fsdpo_data.core.memory_limit import is_memory_error
from fsdpo_data.core.plugins import load_environment_plugins, load_plugin
from fsdpo_data.core.terminal import strip_control_characters

#: The purpose of the project; the package, README and the site have this text, too.
DESCRIPTION = (
    "The open toolkit for step-annotated mathematical reasoning data. It builds versioned "
    "datasets of solutions in steps, with labels and rewards. It measures models with a strict "
    "grader. It trains process reward models, and policies with step-wise DPO."
)
_MAX_REASON_CHARS = 200  #: Characters of a library's message in an error.


def new_app(name: str, purpose: str, group_class: type[HelpGroup] = HelpGroup) -> typer.Typer:
    """Create a command line with ``-h``, ``--version``, ``--plugin`` and shell completion.

    Args:
        name: Name of the program.
        purpose: What the program does for the project, in one sentence.
        group_class: The class of the group of commands.
    """
    app = typer.Typer(
        name=name,
        help=f"{DESCRIPTION}\n\n{purpose}",
        cls=group_class,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def root(
        version: Annotated[
            bool,
            typer.Option(
                "--version", callback=_print_version, is_eager=True, help="Print the version."
            ),
        ] = False,
        plugin: Annotated[
            list[str] | None,
            typer.Option(
                "--plugin",
                callback=_load_plugins,
                is_eager=True,
                metavar="MODULE",
                help="Python file or module that adds samplers, segmenters, losses, stages and "
                "other things; may be repeated. It precedes the command.",
            ),
        ] = None,
    ) -> None:
        """Declare the options of the program itself."""

    return app


def _print_version(is_requested: bool) -> None:
    """Print the version and exit, if ``--version`` is on the command line."""
    if is_requested:
        typer.echo(f"fsdpo {__version__}")
        raise typer.Exit


def _load_plugins(modules: list[str] | None) -> None:
    """Load the plug-ins of ``--plugin``: first, because they add commands and valid values."""
    for module in modules or []:
        try:
            load_plugin(module)
        except FsdpoError as error:
            raise type(error)(f"--plugin {error.value}: {error.message}") from None


def print_next_command(words: Sequence[object]) -> None:
    """Print the command that usually comes next, quoted for a shell."""
    typer.echo(f"next: {shlex.join(map(str, words))}")


def run_app(app: Callable[[], object]) -> NoReturn:
    """Run a command line and exit; an error of the user gives one message and exit code 1."""
    # This must be set before torch is imported. By default, waiting OpenMP threads spin, so two
    # jobs on the same cores slow each other down by a factor of ten or more.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _adapt_to_terminal()
    # bitsandbytes warns at its import that a fast kernel for 4-bit weights on CPUs is missing. Most
    # commands import it through other libraries, and have no such weights.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LevelPrefixFormatter())
    loggers = [logging.getLogger(name) for name in ("fsdpo_data", "fsdpo_train", "fsdpo_bench")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        load_environment_plugins()
        app()
    except BrokenPipeError:  # the reader of the output has closed it, as `… | head` does
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        if is_memory_error(error):
            message = _memory_message(error)
        elif isinstance(error, FsdpoError | OSError):  # such as a folder without permissions
            message = str(error)
        else:
            raise
        print(strip_control_characters(f"error: {message}"), file=sys.stderr)
        sys.exit(1)
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    sys.exit(0)


def _memory_message(error: Exception) -> str:
    """Return the message for memory that is used up, with the first line of the error."""
    lines = str(error).splitlines()
    reason = f" ({lines[0][:_MAX_REASON_CHARS]})" if lines else ""
    return (
        f"the memory of this process is used up{reason}. Use a smaller model or batch, fewer "
        "workers or shards."
    )


def _adapt_to_terminal() -> None:
    """Prepare the output for terminals that cannot show a character, or state no width."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a test may capture the output
            stream.reconfigure(errors="backslashreplace")
    for name in ("COLUMNS", "LINES"):
        value = os.environ.get(name, "1")
        if not value.isdecimal() or int(value) < 1:
            del os.environ[name]


class _LevelPrefixFormatter(logging.Formatter):
    """Formatter that puts ``warning:`` in front of warnings and errors."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message with its prefix, if it has one, and with flags in place of fields."""
        from fsdpo_data.cli.options import with_running_flags

        message = with_running_flags(strip_control_characters(super().format(record)))
        return f"warning: {message}" if record.levelno >= logging.WARNING else message
