"""Turn option classes into commands, and field names in messages into flags."""

import dataclasses
import functools
import re
import shlex
import sys
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar

import typer

from fsdpo_data.cli.help import help_command_class
from fsdpo_data.core.command_line import CommandParameter, command_parameters, make_options
from fsdpo_data.core.errors import FsdpoError
from fsdpo_data.core.option_types import is_path_type
from fsdpo_data.core.options import (
    Option,
    Options,
    class_examples,
    class_summary,
    literal_choices,
)
from fsdpo_data.core.plugins import load_plugin
from fsdpo_data.core.registry import Registry

CommandOptions = TypeVar("CommandOptions")

#: The parameters of a command by name.
_Parameters = Mapping[str, CommandParameter]

#: Exit code of a command that Ctrl-C stopped: 128 + SIGINT, as in shells.
_INTERRUPTED_EXIT_CODE = 130


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetOptions(Options):
    """Options of a command that reads a dataset.

    Attributes:
        data: Directory or URL of a sealed dataset.
    """

    data: Annotated[str | Path, Option(positional=True, dataset="input")]


#: Parameter of every command that is not a field of its options.
PLUGIN = "plugin"
_CONTEXT = "context"


def command(
    app: typer.Typer,
    options_class: type[CommandOptions],
    *,
    name: str | None = None,
    notes: str = "",
    panel: str | None = None,
) -> Callable[[Callable[[CommandOptions], None]], Callable[..., None]]:
    """Return a decorator that registers a function of options as a command.

    Args:
        app: Application that gets the command.
        options_class: Class of the options. Each field becomes a parameter of the command. The
            docstring gives the help, and its ``Examples:`` section the examples.
        name: Name of the command; None for the name of the function.
        notes: Markdown below the examples.
        panel: Heading of the command in the help of ``app``.

    Raises:
        TypeError: If the docstring of ``options_class`` does not document all fields.
    """
    parameters = command_parameters(options_class)
    if undocumented := [name for name, parameter in parameters.items() if not parameter.help]:
        raise TypeError(
            f"{options_class.__name__}: the docstring does not document {sorted(undocumented)}."
        )
    signature = _make_signature(parameters)

    def register(run: Callable[[CommandOptions], None]) -> Callable[..., None]:
        """Register ``run`` as a command."""

        @functools.wraps(run)
        def run_command(context: typer.Context, **values: Any) -> None:
            """Run the command with the values of its parameters."""
            try:
                for plugin in values.pop(PLUGIN):  # plug-ins add valid values of other parameters
                    load_plugin(plugin)
                run(make_options(options_class, _given_values(context, values)))
            except FsdpoError as error:
                raise _with_flag_names(error, parameters) from None
            except KeyboardInterrupt:
                _print_resume_command(str(app.info.name), can_resume="resume" in parameters)
                raise SystemExit(_INTERRUPTED_EXIT_CODE) from None

        # Typer derives the parameters of a command from the signature and the annotations.
        run_command.__signature__ = signature  # type: ignore[attr-defined]
        run_command.__annotations__ = {
            parameter.name: parameter.annotation for parameter in signature.parameters.values()
        }
        run_command.__doc__ = class_summary(options_class)
        app.command(
            name,
            epilog="\n".join(filter(None, [class_examples(options_class), notes])) or None,
            cls=help_command_class(_choices_in_help(parameters)),
            rich_help_panel=panel,
        )(run_command)
        return run_command

    return register


def _make_signature(parameters: _Parameters) -> Signature:
    """Return the signature of a command, from which typer derives its flags."""
    return Signature(
        [
            Parameter(_CONTEXT, Parameter.KEYWORD_ONLY, annotation=typer.Context),
            *(_typer_parameter(parameter, parameters) for parameter in parameters.values()),
            _plugin_parameter(),
        ]
    )


def _choices_in_help(parameters: _Parameters) -> dict[str, Collection[Any]]:
    """Return the choices that the help prints in place of a value, by parameter."""
    return {
        name: parameter.choices
        for name, parameter in parameters.items()
        if not (parameter.option.metavar or parameter.option.positional)
    }


def _given_values(context: typer.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the parameters that are on the command line."""
    return {
        name: value
        for name, value in values.items()
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    }


def _print_resume_command(program: str, *, can_resume: bool) -> None:
    """Print the command that continues the interrupted command."""
    arguments = [program, *sys.argv[1:]]
    if can_resume and "--resume" not in sys.argv:
        arguments.append("--resume")
    message = "\nstopped; the finished work is saved. To continue, run:"
    typer.echo(f"{message}\n  {shlex.join(arguments)}", err=True)


def _plugin_parameter() -> Parameter:
    """Return the parameter of ``--plugin``."""
    parameter = typer.Option(
        "--plugin",
        help="Python file or module that adds samplers, segmenters, losses, stages and other "
        "things; may be repeated.",
        metavar="MODULE",
        rich_help_panel="Plug-ins",
        show_default=False,
    )
    return Parameter(
        PLUGIN,
        Parameter.KEYWORD_ONLY,
        default=[],
        annotation=Annotated[list[str], parameter],
    )


def _typer_parameter(parameter: CommandParameter, parameters: _Parameters) -> Parameter:
    """Return the parameter of the function that typer turns into a command."""
    option = parameter.option
    default = parameter.default
    if default is dataclasses.MISSING:
        default = Parameter.empty
    names = parameter.choices if option.names_in_value is None else option.names_in_value
    settings: dict[str, Any] = {
        "help": with_flags(parameter.help, parameters) + _describe_choices(names),
        "metavar": option.metavar or _metavar(parameter),
        "show_default": _default_text(option, default),
        "rich_help_panel": option.panel or None,
    }
    if is_path_type(parameter.type):
        settings["path_type"] = str
    if option.choices is not None or literal_choices(parameter.type):
        settings["autocompletion"] = lambda incomplete: [
            choice for choice in map(str, parameter.choices) if choice.startswith(incomplete)
        ]
    if option.positional:
        typer_parameter = typer.Argument(**settings)
    else:
        typer_parameter = typer.Option(_flag_declaration(parameter), **settings)
    return Parameter(
        parameter.name,
        Parameter.KEYWORD_ONLY,
        default=list(default) if isinstance(default, tuple) else default,
        annotation=Annotated[_typer_type(parameter.type), typer_parameter],
    )


def _describe_choices(choices: Collection[Any]) -> str:
    """Return a sentence for each choice that has a description, such as a name of a registry."""
    if not isinstance(choices, Registry):
        return ""
    texts = {entry.name: getattr(entry, "description", "") for entry in choices.loaded_entries()}
    return "".join(f" `{name}`: {text}." for name, text in texts.items() if text)


def _default_text(option: Option, default: Any) -> Any:
    """Return the text of a default in the help; False if the help shows no default."""
    if option.default_text:
        return option.default_text
    if default in (Parameter.empty, None, "", ()) or isinstance(default, bool):
        return False
    return ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)


_METAVARS = {Path: "PATH", int: "N", float: "X", str: "TEXT"}


def _metavar(parameter: CommandParameter) -> str:
    """Return the placeholder of a value in the help: a word for its type.

    The help of a parameter with choices shows the choices instead.
    """
    if parameter.option.positional:
        takes_many = typing.get_origin(_typer_type(parameter.type)) is list
        return parameter.name.upper() + ("..." if takes_many else "")
    types = (parameter.type, *typing.get_args(parameter.type))
    return next((word for type_, word in _METAVARS.items() if type_ in types), "")


def _flag_declaration(parameter: CommandParameter) -> str:
    """Return the flag of a parameter for typer; a switch that is on has a ``--no-`` flag."""
    if parameter.type is bool and parameter.default is True:
        return f"{parameter.flag}/{parameter.off_flag}"
    return parameter.flag


def _typer_type(field_type: Any) -> Any:
    """Return the type that typer parses: sequences become lists, and choices become their type.

    The options check the choices themselves.
    """
    origin = typing.get_origin(field_type)
    arguments = typing.get_args(field_type)
    if origin is typing.Literal:
        return type(arguments[0])
    if origin is tuple and Ellipsis not in arguments:  # a pair is one value of two words
        return field_type
    if origin in (tuple, Sequence):
        return list[_typer_type(arguments[0])]  # type: ignore[misc]
    if field_type is Path:  # the options make paths of texts that are not URLs
        return str
    if Path in arguments:
        return str | None if type(None) in arguments else str
    if origin in (UnionType, typing.Union):
        return functools.reduce(lambda left, right: left | right, map(_typer_type, arguments))
    return field_type


#: A field in a message, in backquotes, with or without a value: `out` or `resume=True`.
_QUOTED_FIELD = re.compile(r"(?<!`)`(\w+)(?:=([^`]+))?`(?!`)")


def with_flags(text: str, parameters: _Parameters) -> str:
    """Return a text in which flags replace the fields in backquotes."""

    def replace_field(match: re.Match[str]) -> str:
        """Return the flag of a quoted field, or the quoted text if it is not a field."""
        name: str = match[1]
        value: str | None = match[2]
        if flag := _find_flag(name, value, parameters):
            return flag
        if value is None:  # the word may be something else than a field
            return match[0]
        other_flag = "--" + name.replace("_", "-")  # a field of another command
        if value == "True":
            return other_flag
        if value == "False":
            return f"--no-{other_flag[2:]}"
        return f"{other_flag} {value}"

    return _QUOTED_FIELD.sub(replace_field, text)


def _with_flag_names(error: FsdpoError, parameters: _Parameters) -> FsdpoError:
    """Return a copy of an error with flags in place of fields."""
    field = error.field.rpartition(".")[2]
    message = with_flags(error.message, parameters)
    value = None if error.value is None else str(error.value)
    if field and (flag := _find_flag(field, value, parameters)):
        return type(error)(f"{flag}: {message}")
    return type(error)(message, field=error.field, value=error.value)


def _find_flag(name: str, value: str | None, parameters: _Parameters) -> str:
    """Return the flag that sets a field of the options or of a group, with its value.

    The result is empty if the command has no such flag.
    """
    if name == PLUGIN:  # every command has this flag
        return "--plugin" if value is None else f"--plugin {value}"
    parameter = parameters.get(name) or next(
        (parameter for parameter in parameters.values() if parameter.field_name == name), None
    )
    if parameter is None:
        return ""
    if parameter.type is bool:
        return parameter.off_flag if value == "False" else parameter.flag
    flag = parameter.name.upper() if parameter.option.positional else parameter.flag
    return flag if value is None else f"{flag} {value or repr(value)}"
