"""``--help``: common options first, further options in panels, and complete flags and examples."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from typer.core import TyperArgument, TyperCommand, TyperGroup

if TYPE_CHECKING:
    from rich.markdown import Markdown
    from rich.table import Table

FLAG_COLUMN_WIDTH = 34  #: Width of the flag column in characters, unless a flag is longer.
#: Expected values, by the type of pydantic's error.
_EXPECTATIONS = {
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "int_parsing_size": "expected a whole number with fewer digits",
    "float_parsing": "expected a number",
}
_ARGUMENTS_PANEL = "Arguments"
_OPTIONS_PANEL = "Options"


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

    #: The valid values of parameters, by name; the help reads them when it is printed.
    choices: ClassVar[Mapping[str, Collection[Any]]] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line; the error of a value names the value and the expectation."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            _name_value(error)
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the usage, the help, one table per panel, and the examples."""
        from rich.console import Console
        from rich.panel import Panel

        console = Console()
        console.print(self.get_usage(ctx), style="bold", markup=False, highlight=False)
        if self.help:
            _print_markdown(console, self.help)
        for heading, parameters in self._panels(ctx):
            table = _parameter_table(parameters, self.choices)
            console.print(Panel(table, title=heading, title_align="left", border_style="dim"))
        if self.epilog:
            _print_markdown(console, self.epilog)

    def _panels(self, ctx: Any) -> Iterator[tuple[str, list[Any]]]:
        """Yield the heading and the visible parameters of every panel."""
        panels: dict[str, list[Any]] = {_ARGUMENTS_PANEL: [], _OPTIONS_PANEL: []}
        for parameter in self.get_params(ctx):
            is_argument = isinstance(parameter, TyperArgument)
            default_heading = _ARGUMENTS_PANEL if is_argument else _OPTIONS_PANEL
            heading = getattr(parameter, "rich_help_panel", None) or default_heading
            if not getattr(parameter, "hidden", None):
                panels.setdefault(heading, []).append(parameter)
        for heading, parameters in panels.items():
            if parameters:
                yield heading, parameters


def _name_value(error: Exception) -> None:
    """Put the value and the expectation into the message of an error of typer about a value.

    Typer converts values with pydantic, whose error is the cause.
    """
    cause: Any = error.__cause__
    if hasattr(error, "message") and hasattr(cause, "errors"):
        details = cause.errors()[0]
        expectation = _EXPECTATIONS.get(details["type"], details["msg"])
        error.message = f"{details['input']!r}: {expectation}."


def help_command_class(choices: Mapping[str, Collection[Any]]) -> type[HelpCommand]:
    """Return the class of a command whose parameters have choices."""
    return type("ChoicesHelpCommand", (HelpCommand,), {"choices": choices})


def _print_markdown(console: Any, text: str) -> None:
    """Print Markdown after an empty line; long lines of code are never cut."""
    console.print()
    console.print(_copyable_markdown(text), crop=False)


def _copyable_markdown(text: str) -> Markdown:
    """Return Markdown whose code blocks have no spaces at the end of lines.

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

    return CopyableMarkdown(text)


def _parameter_table(parameters: list[Any], choices: Mapping[str, Collection[Any]]) -> Table:
    """Return a table with the flags and the help of parameters, which may have choices."""
    from rich.markdown import Markdown
    from rich.table import Table

    flag_texts = [
        _format_flags(parameter, choices.get(parameter.name, ())) for parameter in parameters
    ]
    longest_word = max(len(word) for flags in flag_texts for word in flags.split())
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(max_width=max(FLAG_COLUMN_WIDTH, longest_word), overflow="fold", style="cyan")
    table.add_column(ratio=1)
    for flags, parameter in zip(flag_texts, parameters, strict=True):
        table.add_row(flags, Markdown(_help_with_default(parameter)))
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


def _help_with_default(parameter: Any) -> str:
    """Return the help of a parameter, followed by its default or by ``[required]``."""
    if parameter.required:
        return f"{parameter.help} [required]"
    default = getattr(parameter, "show_default", None)
    return f"{parameter.help} [default: {default}]" if isinstance(default, str) else parameter.help
