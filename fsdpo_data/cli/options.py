"""Turn option classes into commands, and field names in messages into flags.

Typer splits the words of a command line. Pydantic alone converts and checks the values, after the
plug-ins are loaded, because they add valid values.
"""

import re
import shlex
import sys
import textwrap
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import typer

from fsdpo_data.cli.help import LIST_START, HelpCommand
from fsdpo_data.core.command_line import (
    CommandParameter,
    command_parameters,
    make_options,
    off_flag,
)
from fsdpo_data.core.errors import FsdpoError
from fsdpo_data.core.options import Option, Options, item_type, split_docstring, type_parts
from fsdpo_data.core.other_names import find_own_name
from fsdpo_data.core.registry import Registry

OptionsT = TypeVar("OptionsT", bound=Options)

#: The parameters of a command by name.
_Parameters = Mapping[str, CommandParameter]
#: The parameters of the running command; log messages name its flags.
_RUNNING_PARAMETERS: ContextVar[_Parameters | None] = ContextVar("running_parameters", default=None)

#: Exit code of a command that Ctrl-C stopped: 128 + SIGINT, as in shells.
_INTERRUPTED_EXIT_CODE = 130


class DatasetOptions(Options):
    """Options of a command that reads a dataset."""

    data: Annotated[str | Path, Option(positional=True, dataset="input")]
    "Directory or URL of a dataset."


def command(
    app: typer.Typer,
    options_class: type[OptionsT],
    *,
    name: str | None = None,
    notes: str = "",
    panel: str | None = None,
) -> Callable[[Callable[[OptionsT], None]], Callable[[OptionsT], None]]:
    """Return a decorator that registers a function of options as a command.

    Args:
        app: Application that gets the command.
        options_class: Class of the options. Each field becomes a parameter of the command. The
            docstring gives the help, and its ``Examples:`` section the examples.
        name: Name of the command; None for the name of the function.
        notes: Markdown below the examples.
        panel: Heading of the command in the help of ``app``.
    """
    parameters = command_parameters(options_class)
    summary, examples = split_docstring(options_class)

    def register(run: Callable[[OptionsT], None]) -> Callable[[OptionsT], None]:
        """Register ``run`` as a command, and return it."""

        def run_command(context: typer.Context, **values: Any) -> None:
            """Run the command with the values of its parameters."""
            token = _RUNNING_PARAMETERS.set(parameters)
            try:
                run(make_options(options_class, _stated_values(context, values)))
            except FsdpoError as error:
                raise _with_flag_names(error, parameters) from None
            except KeyboardInterrupt:
                _print_next_step(app.info.name, can_resume="resume" in parameters)
                raise SystemExit(_INTERRUPTED_EXIT_CODE) from None
            finally:
                _RUNNING_PARAMETERS.reset(token)

        run_command.__signature__ = _typer_signature(parameters)  # type: ignore[attr-defined]
        app.command(
            name or run.__name__,
            help=summary,
            epilog=_format_epilog(examples, notes),
            cls=type("OptionsCommand", (OptionsCommand,), {"options_class": options_class}),
            rich_help_panel=panel,
        )(run_command)
        return run

    return register


def _stated_values(context: typer.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are on the command line."""

    def is_stated(name: str) -> bool:
        source = context.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    return {name: value for name, value in values.items() if is_stated(name)}


def _print_next_step(program: str | None, *, can_resume: bool) -> None:
    """Print the command that continues after Ctrl-C."""
    words = [str(program), *sys.argv[1:]]
    if can_resume and "--resume" not in words:
        words.append("--resume")
    message = "\nstopped; the finished work is saved. To continue, run:"
    typer.echo(f"{message}\n  {shlex.join(words)}", err=True)


def _format_epilog(examples: str, notes: str) -> str | None:
    """Return the Markdown below the parameters; None if there is none."""
    has_sentences = any(line.startswith("    ") for line in examples.splitlines())
    if examples and not has_sentences:
        examples = f"**Examples**\n\n{textwrap.indent(examples, '    ')}"
    return "\n\n".join(filter(None, [examples, notes])) or None


def _typer_signature(parameters: _Parameters) -> Signature:
    """Return the signature from which typer makes the parameters of a command."""
    return Signature(
        [
            Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context),
            *(_typer_parameter(parameter, parameters) for parameter in parameters.values()),
        ]
    )


def _typer_parameter(parameter: CommandParameter, parameters: _Parameters) -> Parameter:
    """Return the parameter of the function that typer turns into a command."""
    option = parameter.option
    typer_type = _typer_type(parameter.info.annotation)
    settings: dict[str, Any] = {
        "help": with_flags(parameter.help, parameters) + _describe(parameter),
        "metavar": option.metavar or _metavar(parameter),
        "show_default": _default_text(parameter),
        "rich_help_panel": option.panel or None,
        "autocompletion": lambda incomplete: [
            choice for choice in map(str, parameter.choices) if choice.startswith(incomplete)
        ],
    }
    flags = [parameter.flag, *option.flags[1:]]
    if typer_type is bool and parameter.default is True:
        flags[0] = f"{parameter.flag}/{off_flag(parameter.flag)}"
    typer_parameter = (
        typer.Argument(**settings) if option.positional else typer.Option(*flags, **settings)
    )
    # Options have their own defaults. Typer only needs to know which way a switch turns.
    default = parameter.default if typer_type is bool else None
    return Parameter(
        parameter.name,
        Parameter.KEYWORD_ONLY,
        default=Parameter.empty if parameter.info.is_required() else default,
        annotation=Annotated[typer_type, typer_parameter],
    )


def _typer_type(field_type: Any) -> Any:
    """Return the type by which typer splits words. Values stay texts, which pydantic converts."""
    if field_type is bool:
        return bool
    if item_type(field_type):
        return list[str]
    # One value of several words, such as a pair
    tuples = [part for part in typing.get_args(field_type) if typing.get_origin(part) is tuple]
    return tuples[0] if tuples else str


def _describe(parameter: CommandParameter) -> str:
    """Return a list of the choices that have a description, such as the names of a registry."""
    names = parameter.option.names_in_value
    choices = parameter.choices if names is None else names
    if not isinstance(choices, Registry):
        return ""
    texts = {entry.name: getattr(entry, "description", "") for entry in choices.loaded_entries()}
    lines = [f"- `{name}`: {text}." for name, text in texts.items() if text]
    return LIST_START + "\n".join(lines) if lines else ""


def _default_text(parameter: CommandParameter) -> Any:
    """Return the text of a default in the help; False if the help shows no default."""
    default = parameter.default
    if parameter.option.default_text:
        return parameter.option.default_text
    if default in (None, "", ()) or isinstance(default, bool):
        return False
    return ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)


_METAVARS = {Path: "PATH", int: "N", float: "X", str: "TEXT"}


def _metavar(parameter: CommandParameter) -> str:
    """Return the placeholder of a value in the help: a word for its type."""
    field_type = parameter.info.annotation
    if parameter.option.positional:
        return parameter.flag + ("..." if item_type(field_type) else "")
    types = list(type_parts(field_type))
    return next((word for type_, word in _METAVARS.items() if type_ in types), "")


#: A field in a message, in backquotes, with or without a value: `out` or `resume=True`.
_QUOTED_FIELD = re.compile(r"(?<!`)`(\w+)(?:=([^`]+))?`(?!`)")


def with_running_flags(text: str) -> str:
    """Return a text in which flags of the running command replace the fields in backquotes."""
    return with_flags(text, _RUNNING_PARAMETERS.get() or {})


def with_flags(text: str, parameters: _Parameters) -> str:
    """Return a text in which flags replace the fields in backquotes."""

    def replace_field(match: re.Match[str]) -> str:
        """Return the flag of a quoted field, or the quoted text if it is not a field."""
        name: str = match[1]
        value: str | None = match[2]
        flag = _find_flag([name], value, parameters)
        if flag or value is None:  # without a value, the word may be something else than a field
            return flag or match[0]
        other_flag = f"--{name.replace('_', '-')}"  # a field of another command
        return _with_value(other_flag, value, is_switch=value in ("True", "False"))

    return _QUOTED_FIELD.sub(replace_field, text)


def _with_flag_names(error: FsdpoError, parameters: _Parameters) -> FsdpoError:
    """Return a copy of an error with flags in place of fields."""
    message = with_flags(error.message, parameters)
    if not error.field:
        return type(error)(message)
    path = [name for name in error.field.split(".") if not name[:1].isupper()]  # without the class
    value = None if error.value is None else str(error.value)
    if flag := _find_flag(path, value, parameters):
        return type(error)(f"{flag}: {message}")
    return type(error)(message, field=error.field, value=error.value)


def _find_flag(path: Sequence[str], value: str | None, parameters: _Parameters) -> str:
    """Return the flag of a field, with its value; empty if the command has no such flag.

    Args:
        path: Fields that lead to the value, as far as they are known. The last one is a field of
            the options or of a group, or the name of a parameter.
        value: The value; None for the flag alone.
        parameters: The parameters of the command.
    """
    by_name = {item.path[-1]: item for item in parameters.values()} | dict(parameters)
    by_path = {item.path: item for item in parameters.values()}
    parameter = by_path.get(tuple(path)) or by_name.get(path[-1])
    if parameter is None:
        return ""
    return _with_value(parameter.flag, value, is_switch=parameter.info.annotation is bool)


def _with_value(flag: str, value: str | None, *, is_switch: bool) -> str:
    """Return the words that give a flag a value; only the flag if the value is None."""
    if is_switch:
        return off_flag(flag) if value == "False" else flag
    return flag if value is None else f"{flag} {value or repr(value)}"


class OptionsCommand(HelpCommand):
    """A command that is made from an option class."""

    options_class: ClassVar[type[Options]]  #: The class of the options.

    @property
    def choices(self) -> Mapping[str, Collection[Any]]:
        """The valid values of parameters by name, read now, because plug-ins add some."""
        return {
            name: parameter.choices
            for name, parameter in command_parameters(self.options_class).items()
            if not (parameter.option.metavar or parameter.option.positional)
        }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a command line; an unknown flag gets the flag of the same meaning."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # Typer has its own copy of click, whose module is private.
            if type(error).__name__ == "NoSuchOption":
                _suggest_flag(error, command_parameters(self.options_class))
            raise


def _suggest_flag(error: Any, parameters: _Parameters) -> None:
    """Put the flag that other tools call like the unknown option into its error."""
    name = error.option_name.lstrip("-").replace("-", "_")
    own_name, _, value = (find_own_name(name) or name).partition("=")
    if own_name == "plugin":  # an option of the program
        error.possibilities = ["--plugin before the command"]
    elif flag := _find_flag([own_name], value or None, parameters):
        error.possibilities = [flag]
