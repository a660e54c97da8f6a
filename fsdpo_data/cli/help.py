"""The help of commands in the terminal."""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from typer.core import TyperArgument, TyperCommand, TyperGroup

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FLAG_COLUMN_WIDTH = 34  #: Width of the flag column in characters, unless a flag is longer.
LIST_START = "\n\n"  #: Text between a sentence and a list in Markdown.


class HelpGroup(TyperGroup):
    """A group of commands whose own options are shown without a type, but with their metavar."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the group; those without a metavar take no value."""
        parameters = super().get_params(ctx)
        for parameter in parameters:
            parameter.metavar = parameter.metavar or ""
        return parameters


class HelpCommand(TyperCommand):
    """A command whose help never shortens flags; typer shortens them on narrow terminals."""

    @property
    def choices(self) -> Mapping[str, Collection[Any]]:
        """The valid values of parameters, by name."""
        return {}

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
        text, list_start, items = text.partition(f"{LIST_START}- ")
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
