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

from fsdpo_data.cli.help import HelpCommand
from fsdpo_data.cli.launch import launch_script
from fsdpo_data.core.errors import FsdpoError
from fsdpo_data.core.options import (
    Option,
    Options,
    class_summary,
    declared_fields,
    field_help,
    literal_choices,
)
from fsdpo_data.core.registry import Registry, UnversionedNames

CommandOptions = TypeVar("CommandOptions")

#: The type and the :class:`Option` of each field of an option class, by field name.
_FieldOptions = Mapping[str, tuple[Any, Option]]

#: Exit code of a command that Ctrl-C stopped: 128 + SIGINT, as in shells.
_INTERRUPTED_EXIT_CODE = 130


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetOptions(Options):
    """Options of a command that reads a dataset.

    Attributes:
        data: Directory of a sealed dataset.
    """

    data: Annotated[Path, Option(positional=True)]


#: The only parameter of a command that is not a field of its options.
PRINT_LAUNCH = "print_launch"


def command(
    app: typer.Typer,
    options_class: type[CommandOptions],
    *,
    name: str | None = None,
    examples: str = "",
    panel: str | None = None,
    launch: Mapping[str, str] | None = None,
) -> Callable[[Callable[[CommandOptions], None]], Callable[..., None]]:
    """Return a decorator that registers a function of options as a command.

    Args:
        app: Application that gets the command.
        options_class: Class of the options. Each field becomes a parameter of the command.
        name: Name of the command; None for the name of the function.
        examples: Markdown below the help.
        panel: Heading of the command in the help of ``app``.
        launch: Scripts of ``--print-launch`` (:mod:`fsdpo_data.cli.launch`); None for no such flag.

    Raises:
        TypeError: If the docstring of ``options_class`` does not document all fields.
    """
    help_texts = field_help(options_class)
    field_options = declared_fields(options_class)
    if undocumented := field_options.keys() - help_texts.keys():
        raise TypeError(
            f"{options_class.__name__}: the docstring does not document {sorted(undocumented)}."
        )
    parameters = [
        _parameter_of(field, field_options, help_texts[field.name])
        for field in dataclasses.fields(options_class)  # type: ignore[arg-type]
    ]
    if launch:
        parameters.append(_print_launch_parameter(launch))

    def register(run: Callable[[CommandOptions], None]) -> Callable[..., None]:
        """Register ``run`` as a command."""

        @functools.wraps(run)
        def run_command(**values: Any) -> None:
            """Run the command with the values of its parameters."""
            launcher = values.pop(PRINT_LAUNCH, None)
            try:
                options = _make_options(options_class, values)
                if launch and launcher:
                    program = str(app.info.name)
                    typer.echo(launch_script(launch, launcher, program, sys.argv[1:]))
                else:
                    run(options)
            except FsdpoError as error:
                raise _with_flag_names(error, field_options) from None
            except KeyboardInterrupt:
                _print_resume_command(str(app.info.name), can_resume="resume" in field_options)
                raise SystemExit(_INTERRUPTED_EXIT_CODE) from None

        # Typer derives the parameters of a command from the signature and the annotations.
        run_command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run_command.__annotations__ = {
            parameter.name: parameter.annotation for parameter in parameters
        }
        run_command.__doc__ = class_summary(options_class)
        app.command(name, epilog=examples or None, cls=HelpCommand, rich_help_panel=panel)(
            run_command
        )
        return run_command

    return register


def _make_options(options_class: type[CommandOptions], values: Mapping[str, Any]) -> CommandOptions:
    """Create options from the values that typer parsed; lists become tuples."""
    field_values = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return options_class(**field_values)


def _print_resume_command(program: str, *, can_resume: bool) -> None:
    """Print the command that continues the interrupted command."""
    arguments = [program, *sys.argv[1:]]
    if can_resume and "--resume" not in sys.argv:
        arguments.append("--resume")
    message = "\nstopped; the finished work is saved. To continue, run:"
    typer.echo(f"{message}\n  {shlex.join(arguments)}", err=True)


def _print_launch_parameter(scripts: Mapping[str, str]) -> Parameter:
    """Return the parameter of ``--print-launch``."""
    parameter = typer.Option(
        "--print-launch",
        help="Run nothing. Print a script that runs the same command on several machines.",
        metavar="|".join(scripts),
        rich_help_panel="Run",
    )
    annotation = Annotated[str | None, parameter]
    return Parameter(PRINT_LAUNCH, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _parameter_of(
    field: dataclasses.Field[Any], field_options: _FieldOptions, help_text: str
) -> Parameter:
    """Return the parameter of a command for a field of its options."""
    field_type, option = field_options[field.name]
    default = Parameter.empty if field.default is dataclasses.MISSING else field.default
    choices = option.choices or literal_choices(field_type)
    settings: dict[str, Any] = {
        "help": _with_flags(help_text, field_options) + _describe_choices(choices),
        "metavar": option.metavar or _metavar(field.name, field_type, option),
        "show_default": _default_text(option, default),
        "rich_help_panel": option.panel or None,
    }
    if choices:
        settings["autocompletion"] = lambda incomplete: [
            choice for choice in map(str, choices) if choice.startswith(incomplete)
        ]
    if option.positional:
        parameter = typer.Argument(**settings)
    else:
        flag = _flag_declaration(field.name, field_type, option, default)
        parameter = typer.Option(flag, **settings)
    return Parameter(
        field.name,
        Parameter.KEYWORD_ONLY,
        default=list(default) if isinstance(default, tuple) else default,
        annotation=Annotated[_typer_type(field_type), parameter],
    )


def _describe_choices(choices: Collection[Any]) -> str:
    """Return a sentence for each choice that has a description, such as a name of a registry."""
    if not isinstance(choices, Registry | UnversionedNames):
        return ""
    return "".join(f" `{name}`: {text}." for name, text in choices.descriptions().items())


def _default_text(option: Option, default: Any) -> Any:
    """Return the text of a default in the help; False if the help shows no default."""
    if option.default_text:
        return option.default_text
    if default in (Parameter.empty, None, "", ()) or isinstance(default, bool):
        return False
    return ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)


_METAVARS = {Path: "PATH", int: "N", float: "X", str: "TEXT"}


def _metavar(name: str, field_type: Any, option: Option) -> str:
    """Return the placeholder of a value in the help: its choices, or a word for its type."""
    if option.positional:
        takes_many = typing.get_origin(_typer_type(field_type)) is list
        return name.upper() + ("..." if takes_many else "")
    if choices := option.choices or literal_choices(field_type):
        return "|".join(map(str, choices))
    types = (field_type, *typing.get_args(field_type))
    return next((word for type_, word in _METAVARS.items() if type_ in types), "")


def _flag_declaration(name: str, field_type: Any, option: Option, default: Any) -> str:
    """Return the flag of a field for typer; a switch that is on has a ``--no-`` flag."""
    flag = option.flag or "--" + name.replace("_", "-")
    return f"{flag}/--no-{flag[2:]}" if field_type is bool and default is True else flag


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
    if Path in arguments:  # the library also accepts paths as text
        return Path | None if type(None) in arguments else Path
    if origin in (UnionType, typing.Union):
        return functools.reduce(lambda left, right: left | right, map(_typer_type, arguments))
    return field_type


#: A field in a message, in backquotes, with or without a value: `out` or `resume=True`.
_QUOTED_FIELD = re.compile(r"(?<!`)`(\w+)(?:=([^`]+))?`(?!`)")


def _with_flags(text: str, field_options: _FieldOptions) -> str:
    """Return a text in which flags replace the fields in backquotes."""

    def replace_field(match: re.Match[str]) -> str:
        """Return the flag of a quoted field, or the quoted text if it is not a field."""
        name: str = match[1]
        value: str | None = match[2]
        if flag := _find_flag(name, value, field_options):
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


def _with_flag_names(error: FsdpoError, field_options: _FieldOptions) -> FsdpoError:
    """Return a copy of an error with flags in place of fields."""
    field = error.field.rpartition(".")[2]
    message = _with_flags(error.message, field_options)
    value = None if error.value is None else str(error.value)
    if field and (flag := _find_flag(field, value, field_options)):
        return type(error)(f"{flag}: {message}")
    return type(error)(message, field=error.field, value=error.value)


def _find_flag(name: str, value: str | None, field_options: _FieldOptions) -> str:
    """Return the flag that sets a field of the options or of a spec, with its value.

    The result is empty if the command has no such flag.
    """
    for field, (field_type, option) in field_options.items():
        if name not in (field, option.spec_field):
            continue
        if field_type is bool:
            declaration = _flag_declaration(field, field_type, option, default=True)
            on_flag, _, off_flag = declaration.partition("/")
            return off_flag if value == "False" else on_flag
        if option.positional:
            flag = field.upper()
        else:
            flag = _flag_declaration(field, field_type, option, default=None)
        return flag if value is None else f"{flag} {value}"
    return ""
