"""Turn option classes into commands, and field names in messages into flags.

Typer splits the words of a command line. Pydantic alone converts and checks the values, after the
plug-ins are loaded, because they add valid values.
"""

import re
import shlex
import sys
import textwrap
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from fsdpo_data.core.command_line import CommandParameter, command_parameters, make_options
from fsdpo_data.core.errors import FsdpoError
from fsdpo_data.core.options import Option, Options, item_type, plain_types, split_docstring
from fsdpo_data.core.other_names import find_own_name
from fsdpo_data.core.plugins import load_plugin
from fsdpo_data.core.registry import Registry

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

OptionsT = TypeVar("OptionsT", bound=Options)

#: The parameters of a command by name.
_Parameters = Mapping[str, CommandParameter]

FLAG_COLUMN_WIDTH = 34  #: Width of the flag column in characters, unless a flag is longer.
#: Exit code of a command that Ctrl-C stopped: 128 + SIGINT, as in shells.
_INTERRUPTED_EXIT_CODE = 130
_PLUGIN = typer.Option(
    "--plugin",
    help="Python file or module that adds samplers, segmenters, losses, stages and other things; "
    "may be repeated.",
    metavar="MODULE",
    rich_help_panel="Plug-ins",
    show_default=False,
)


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
) -> Callable[[Callable[[OptionsT], None]], Callable[..., None]]:
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

    def register(run: Callable[[OptionsT], None]) -> Callable[..., None]:
        """Register ``run`` as a command."""

        @wraps(run)
        def run_command(context: typer.Context, plugin: Sequence[str], **values: Any) -> None:
            """Run the command with the values of its parameters."""
            try:
                for module in plugin:
                    load_plugin(module)
                given_values = {
                    key: value
                    for key, value in values.items()
                    if getattr(context.get_parameter_source(key), "name", "") == "COMMANDLINE"
                }
                run(make_options(options_class, given_values))
            except FsdpoError as error:
                raise _with_flag_names(error, parameters) from None
            except KeyboardInterrupt:
                arguments = [str(app.info.name), *sys.argv[1:]]
                if "resume" in parameters and "--resume" not in sys.argv:
                    arguments.append("--resume")
                message = "\nstopped; the finished work is saved. To continue, run:"
                typer.echo(f"{message}\n  {shlex.join(arguments)}", err=True)
                raise SystemExit(_INTERRUPTED_EXIT_CODE) from None

        typer_parameters = [
            Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context),
            *(_typer_parameter(parameter, parameters) for parameter in parameters.values()),
            Parameter(
                "plugin",
                Parameter.KEYWORD_ONLY,
                default=[],
                annotation=Annotated[list[str], _PLUGIN],
            ),
        ]
        # Typer derives the parameters of a command from the signature and the annotations.
        run_command.__signature__ = Signature(typer_parameters)  # type: ignore[attr-defined]
        run_command.__annotations__ = {item.name: item.annotation for item in typer_parameters}
        summary, examples = split_docstring(options_class)
        has_sentences = any(line.startswith("    ") for line in examples.splitlines())
        if examples and not has_sentences:
            examples = f"**Examples**\n\n{textwrap.indent(examples, '    ')}"
        run_command.__doc__ = summary
        choices = {
            key: parameter.choices
            for key, parameter in parameters.items()
            if not (parameter.option.metavar or parameter.option.positional)
        }
        app.command(
            name,
            epilog="\n\n".join(filter(None, [examples, notes])) or None,
            cls=type(
                "OptionsCommand",
                (HelpCommand,),
                {"choices": choices, "options_class": options_class},
            ),
            rich_help_panel=panel,
        )(run_command)
        return run_command

    return register


def _typer_parameter(parameter: CommandParameter, parameters: _Parameters) -> Parameter:
    """Return the parameter of the function that typer turns into a command."""
    option = parameter.option
    field_type = parameter.info.annotation
    is_switch = field_type is bool
    types = (field_type, *typing.get_args(field_type))
    typer_type: Any = bool if is_switch else str
    if item_type(field_type):
        typer_type = list[str]
    elif pair := next((part for part in types if typing.get_origin(part) is tuple), None):
        typer_type = pair  # one value of several words
    default: Any = parameter.default if is_switch else None
    if parameter.info.is_required():
        default = Parameter.empty
    elif typer_type == list[str]:
        default = []
    elif not is_switch:
        typer_type = typer_type | None
    settings: dict[str, Any] = {
        "help": with_flags(parameter.help, parameters, parameter.path[:-1]) + _describe(parameter),
        "metavar": option.metavar or _metavar(parameter),
        "show_default": _default_text(parameter),
        "rich_help_panel": option.panel or None,
        "autocompletion": lambda incomplete: [
            choice for choice in map(str, parameter.choices) if choice.startswith(incomplete)
        ],
    }
    flags = [parameter.flag, *option.flags[1:]]
    if is_switch and parameter.default is True:
        flags[0] = f"{parameter.flag}/{parameter.off_flag}"
    typer_parameter = (
        typer.Argument(**settings) if option.positional else typer.Option(*flags, **settings)
    )
    return Parameter(
        parameter.name,
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[typer_type, typer_parameter],
    )


_LIST_START = "\n\n"  #: Text between a sentence and a list in Markdown.


def _describe(parameter: CommandParameter) -> str:
    """Return a list of the choices that have a description, such as the names of a registry."""
    names = parameter.option.names_in_value
    choices = parameter.choices if names is None else names
    if not isinstance(choices, Registry):
        return ""
    texts = {entry.name: getattr(entry, "description", "") for entry in choices.loaded_entries()}
    lines = [f"- `{name}`: {text}." for name, text in texts.items() if text]
    return _LIST_START + "\n".join(lines) if lines else ""


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
    types = list(plain_types(field_type))
    return next((word for type_, word in _METAVARS.items() if type_ in types), "")


#: A field in a message, in backquotes, with or without a value: `out` or `resume=True`.
_QUOTED_FIELD = re.compile(r"(?<!`)`(\w+)(?:=([^`]+))?`(?!`)")


def with_flags(text: str, parameters: _Parameters, group: Sequence[str] = ()) -> str:
    """Return a text in which flags replace the fields in backquotes.

    Args:
        text: The text.
        parameters: The parameters of the command.
        group: Fields that lead to the group whose members the text names first.
    """

    def replace_field(match: re.Match[str]) -> str:
        """Return the flag of a quoted field, or the quoted text if it is not a field."""
        name: str = match[1]
        value: str | None = match[2]
        if flag := _find_flag([*group, name], value, parameters):
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
    *groups, name = error.field.split(".")
    groups = [group for group in groups if not group[:1].isupper()]  # without the class
    message = with_flags(error.message, parameters, groups)
    value = None if error.value is None else str(error.value)
    if not name:
        return type(error)(message)
    if flag := _find_flag([*groups, name], value, parameters):
        return type(error)(f"{flag}: {message}")
    return type(error)(message, field=error.field, value=error.value)


def _find_flag(path: Sequence[str], value: str | None, parameters: _Parameters) -> str:
    """Return the flag that sets a field of the options or of a group, with its value.

    The result is empty if the command has no such flag.
    """
    if path[-1] == "plugin":  # every command has this flag
        return "--plugin" if value is None else f"--plugin {value}"
    parameter = _find_parameter(path, parameters)
    if parameter is None:
        return ""
    if parameter.info.annotation is bool:
        return parameter.off_flag if value == "False" else parameter.flag
    return parameter.flag if value is None else f"{parameter.flag} {value or repr(value)}"


def _find_parameter(path: Sequence[str], parameters: _Parameters) -> CommandParameter | None:
    """Return the parameter that a path of fields names; the innermost group that has one counts."""
    *groups, name = path
    for depth in range(len(groups), -1, -1):
        group = tuple(groups[:depth])
        candidates = [
            parameter
            for parameter in parameters.values()
            if parameter.path[:depth] == group and name in (parameter.name, parameter.path[-1])
        ]
        if candidates:
            return min(
                candidates, key=lambda item: (item.path != (*group, name), item.name != name)
            )
    return None


class HelpGroup(TyperGroup):
    """A group of commands whose own options are shown without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the group without metavars, because none takes a value."""
        parameters = super().get_params(ctx)
        for parameter in parameters:
            parameter.metavar = ""
        return parameters


class HelpCommand(TyperCommand):
    """A command whose help never shortens flags; typer shortens them on narrow terminals."""

    #: Class of the options; None for a command without options.
    options_class: ClassVar[type[Options] | None] = None
    #: The valid values of parameters, by name; the help reads them when it is printed.
    choices: ClassVar[Mapping[str, Collection[Any]]] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a command line; an unknown flag gets the flag of the same meaning."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # Typer has its own copy of click, whose module is private.
            if type(error).__name__ == "NoSuchOption" and self.options_class is not None:
                _suggest_flag(error, command_parameters(self.options_class))
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the usage, the help, one table per panel, and the examples."""
        from rich.console import Console
        from rich.panel import Panel

        console = Console()
        console.print(self.get_usage(ctx), style="bold", markup=False, highlight=False)
        _print_markdown(console, self.help)
        panels: dict[str, list[Any]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            heading = "Arguments" if isinstance(parameter, TyperArgument) else "Options"
            heading = getattr(parameter, "rich_help_panel", None) or heading
            if not getattr(parameter, "hidden", None):
                panels.setdefault(heading, []).append(parameter)
        for heading, parameters in panels.items():
            if parameters:
                table = _parameter_table(parameters, self.choices)
                console.print(Panel(table, title=heading, title_align="left", border_style="dim"))
        _print_markdown(console, self.epilog)


def _suggest_flag(error: Any, parameters: _Parameters) -> None:
    """Put the flag that other tools call like the unknown option into its error."""
    name = error.option_name.lstrip("-").replace("-", "_")
    own_name, _, value = (find_own_name(name) or name).partition("=")
    if flag := _find_flag([own_name], value or None, parameters):
        error.possibilities = [flag]


def _print_markdown(console: "Console", text: str | None) -> None:
    """Print Markdown after an empty line; long lines of code are never cut.

    The code blocks of rich are padded to the width of the terminal. A space after the backslash at
    the end of a line would break a pasted command.
    """
    from rich.markdown import CodeBlock, Markdown
    from rich.text import Text

    class UnpaddedCodeBlock(CodeBlock):
        def __rich_console__(self, console: Any, options: Any) -> Iterator[Text]:
            for line in str(self.text).rstrip().split("\n"):
                yield Text(f"  {line}".rstrip(), style="cyan", no_wrap=True, overflow="ignore")

    class CopyableMarkdown(Markdown):
        elements: ClassVar[dict[str, Any]] = {
            **Markdown.elements,
            "code_block": UnpaddedCodeBlock,
            "fence": UnpaddedCodeBlock,
        }

    if text:
        console.print()
        console.print(CopyableMarkdown(text), crop=False)


def _parameter_table(parameters: list[Any], choices: Mapping[str, Collection[Any]]) -> "Table":
    """Return a table with the flags and the help of parameters, which may have choices."""
    from rich.markdown import Markdown
    from rich.table import Table

    flag_texts = [_format_flags(item, choices.get(item.name, ())) for item in parameters]
    longest_word = max(len(word) for flags in flag_texts for word in flags.split())
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(max_width=max(FLAG_COLUMN_WIDTH, longest_word), overflow="fold", style="cyan")
    table.add_column(ratio=1)
    for flags, parameter in zip(flag_texts, parameters, strict=True):
        text = parameter.help
        default = getattr(parameter, "show_default", None)
        text, list_start, items = text.partition(f"{_LIST_START}- ")
        if parameter.required:
            text += " [required]"
        elif isinstance(default, str):
            text += f" [default: {default}]"
        table.add_row(flags, Markdown(f"{text}{list_start}{items}"))
    return table


def _format_flags(parameter: Any, choices: Collection[Any]) -> str:
    """Return the flags of a parameter, with each ``--no-`` flag on its own line."""
    metavar = (parameter.metavar or "").replace("|", " | ")  # spaces, so that choices can wrap
    if choices:
        metavar = " | ".join(map(str, choices))
    if isinstance(parameter, TyperArgument):
        return str(metavar)
    short_first = sorted(parameter.opts, key=len)
    lines = [", ".join(short_first), *parameter.secondary_opts]
    return "\n".join(f"{line} {metavar}".strip() for line in lines)
