"""Classes of options become commands; errors that name fields become errors that name flags."""

import dataclasses
import functools
import re
import shlex
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
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

Given = TypeVar("Given")
_Declared = Mapping[
    str, tuple[Any, Option]
]  #: Type and :class:`Option` of each field of a command.


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetOptions(Options):
    """Options of a command that looks at a dataset, or hands it on.

    Attributes:
        data: A sealed dataset.
    """

    data: Annotated[Path, Option(positional=True)]


PRINT_LAUNCH = "print_launch"  #: The one parameter that is the command line's alone.


def command(
    app: typer.Typer,
    kind: type[Given],
    *,
    name: str | None = None,
    examples: str = "",
    panel: str | None = None,
    launch: Mapping[str, str] | None = None,
) -> Callable[[Callable[[Given], None]], Callable[..., None]]:
    """Register a function of ``kind`` as a command with a parameter for each of its fields.

    ``examples`` are Markdown shown below the help, ``panel`` is the heading under which the help of
    ``app`` lists the command; ``launch`` are the scripts of ``--print-launch``
    (:mod:`fsdpo_data.cli.launch`), None for no such flag.

    Raises:
        TypeError: if the docstring leaves a field out.
    """
    told, declared = field_help(kind), declared_fields(kind)
    if odd := declared.keys() - told.keys():
        raise TypeError(f"{kind.__name__}: its docstring says nothing of {sorted(odd)}.")

    def register(run: Callable[[Given], None]) -> Callable[..., None]:
        @functools.wraps(run)
        def run_command(**given: Any) -> None:
            how = given.pop(PRINT_LAUNCH, None)
            try:
                options = kind(
                    **{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
                )
                if launch and how:
                    typer.echo(launch_script(launch, how, str(app.info.name), sys.argv[1:]))
                else:
                    run(options)
            except FsdpoError as error:
                raise _with_flag_names(error, declared) from None
            except KeyboardInterrupt:
                more = ["--resume"] if "resume" in declared and "--resume" not in sys.argv else []
                line = shlex.join([str(app.info.name), *sys.argv[1:], *more])
                told = f"\nstopped; what is done stays done. Go on with:\n  {line}"
                typer.echo(told, err=True)
                raise SystemExit(130) from None

        parameters = [
            _parameter_of(each, declared, told[each.name])
            for each in dataclasses.fields(kind)  # type: ignore[arg-type]
        ]
        if launch:
            parameters.append(_print_launch(launch))
        # What typer reads of a function.
        run_command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run_command.__annotations__ = {each.name: each.annotation for each in parameters}
        run_command.__doc__ = class_summary(kind)
        app.command(name, epilog=examples or None, cls=HelpCommand, rich_help_panel=panel)(
            run_command
        )
        return run_command

    return register


def _print_launch(scripts: Mapping[str, str]) -> Parameter:
    parameter = typer.Option(
        "--print-launch",
        help="Do nothing, and print a script that runs the same on more machines.",
        metavar="|".join(scripts),
        rich_help_panel="Run",
    )
    annotation = Annotated[str | None, parameter]
    return Parameter(PRINT_LAUNCH, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _parameter_of(field: dataclasses.Field[Any], declared: _Declared, help: str) -> Parameter:
    kind, option = declared[field.name]
    default = Parameter.empty if field.default is dataclasses.MISSING else field.default
    choices = option.choices or literal_choices(kind)
    shown: dict[str, Any] = {
        "help": _with_flags(help, declared),
        "metavar": option.metavar or _metavar(field.name, kind, option),
        "show_default": _default_text(option, default),
        "rich_help_panel": option.panel or None,
    }
    if choices:
        shown["autocompletion"] = lambda incomplete: [
            each for each in map(str, choices) if each.startswith(incomplete)
        ]
    if option.positional:
        parameter = typer.Argument(**shown)
    else:
        parameter = typer.Option(*_flags(field.name, kind, option, default), **shown)
    return Parameter(
        field.name,
        Parameter.KEYWORD_ONLY,
        default=list(default) if isinstance(default, tuple) else default,
        annotation=Annotated[_typer_type(kind), parameter],
    )


def _default_text(option: Option, default: Any) -> Any:
    """Return what the help says of a default; False where there is nothing to say."""
    if option.default_text:
        return option.default_text
    if default in (Parameter.empty, None, "", ()) or isinstance(default, bool):
        return False
    return ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)


_METAVARS = {Path: "PATH", int: "N", float: "X", str: "TEXT"}


def _metavar(name: str, kind: Any, option: Option) -> str:
    """Return what the help shows for a value: its choices, or a word for its type."""
    if option.positional:
        several = typing.get_origin(_typer_type(kind)) is list
        return name.upper() + ("..." if several else "")
    if choices := option.choices or literal_choices(kind):
        return "|".join(map(str, choices))
    parts = (kind, *typing.get_args(kind))
    return next((word for each, word in _METAVARS.items() if each in parts), "")


def _flags(name: str, kind: Any, option: Option, default: Any) -> tuple[str, ...]:
    """Return the flags of an option; a switch that is off by default has no ``--no-``."""
    flag = option.flag or "--" + name.replace("_", "-")
    return (f"{flag}/--no-{flag[2:]}",) if kind is bool and default is True else (flag,)


def _typer_type(kind: Any) -> Any:
    """Return the type as typer knows it: sequences are lists, and words are checked by us."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return type(arguments[0])
    if origin is tuple and Ellipsis not in arguments:  # a pair is one value of two words
        return kind
    if origin in (tuple, Sequence):
        return list[_typer_type(arguments[0])]  # type: ignore[misc]
    if Path in arguments:  # a path may be given as text to the library
        return Path | None if type(None) in arguments else Path
    if origin in (UnionType, typing.Union):
        return functools.reduce(lambda a, b: a | b, map(_typer_type, arguments))
    return kind


#: What a message says to set: `resume=True`, whatever the command; `out`, if it is a field of it.
_NAMED = re.compile(r"(?<!`)`(\w+)(?:=([^`]+))?`(?!`)")


def _with_flags(text: str, declared: _Declared) -> str:
    """Return a text that names flags in place of the fields in backquotes."""

    def flag_name(found: re.Match[str]) -> str:
        if known := _flag(found[1], found[2], declared):
            return known
        if found[2] is None:  # it may be no field at all
            return found[0]
        flag = "--" + found[1].replace("_", "-")  # of another command
        told = {"True": flag, "False": f"--no-{flag[2:]}"}
        return told.get(found[2], f"{flag} {found[2]}")

    return _NAMED.sub(flag_name, text)


def _with_flag_names(error: FsdpoError, declared: _Declared) -> FsdpoError:
    """Return an error that names flags in place of fields."""
    field = error.field.rpartition(".")[2]
    message = _with_flags(error.message, declared)
    value = None if error.value is None else str(error.value)
    if field and (flag := _flag(field, value, declared)):
        return type(error)(f"{flag}: {message}")
    return type(error)(message, field=error.field, value=error.value)


def _flag(name: str, value: str | None, declared: _Declared) -> str:
    """Return the flag of a field, or of the field that sets it, with its value; empty if none."""
    for field, (kind, option) in declared.items():
        if name not in (field, option.spec_field):
            continue
        if kind is bool:
            on, _, off = _flags(field, kind, option, True)[0].partition("/")
            return off if value == "False" else on
        flag = field.upper() if option.positional else _flags(field, kind, option, None)[0]
        return flag if value is None else f"{flag} {value}"
    return ""
