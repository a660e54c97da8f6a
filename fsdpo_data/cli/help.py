"""``--help``: everyday options first, the others under headings, and no flag is ever cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from typer.core import TyperArgument, TyperCommand, TyperGroup

if TYPE_CHECKING:
    from rich.table import Table

FLAG_COLUMN_WIDTH = 34  #: Width of the column of flags, unless one is longer.


class HelpGroup(TyperGroup):
    """A command line whose switches are shown without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the command line itself, all of them switches."""
        found = super().get_params(ctx)
        for each in found:
            each.metavar = ""
        return found


class HelpCommand(TyperCommand):
    """A command whose help shows every flag whole; typer's own cuts them on narrow terminals."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print usage, help, one table for each panel, examples."""
        from rich.console import Console
        from rich.markdown import Markdown
        from rich.panel import Panel

        console = Console()
        console.print(self.get_usage(ctx), style="bold", markup=False, highlight=False)
        for text in (self.help, *self._tables(ctx), self.epilog):
            if isinstance(text, str):
                console.print()
                console.print(Markdown(text))
            elif text is not None:
                heading, table = text
                console.print(Panel(table, title=heading, title_align="left", border_style="dim"))

    def _tables(self, ctx: Any) -> Iterator[tuple[str, Table]]:
        panels: dict[str, list[Any]] = {"Arguments": [], "Options": []}
        for each in self.get_params(ctx):
            usual = "Arguments" if isinstance(each, TyperArgument) else "Options"
            heading = getattr(each, "rich_help_panel", None) or usual
            if not getattr(each, "hidden", False):
                panels.setdefault(heading, []).append(each)
        for heading, parameters in panels.items():
            if parameters:
                yield heading, _table(parameters)


def _table(parameters: list[Any]) -> Table:
    from rich.markdown import Markdown
    from rich.table import Table

    rows = [(_flags(each), Markdown(_help_with_default(each))) for each in parameters]
    widest = max(len(word) for flags, _ in rows for word in flags.split())
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(max_width=max(FLAG_COLUMN_WIDTH, widest), overflow="fold", style="cyan")
    table.add_column(ratio=1)
    for row in rows:
        table.add_row(*row)
    return table


def _flags(parameter: Any) -> str:
    """Return the flags of a parameter, those that switch off on a line of their own."""
    metavar = (parameter.metavar or "").replace("|", " | ")  # so that choices can wrap
    if isinstance(parameter, TyperArgument):
        return str(metavar)
    short_first = sorted(parameter.opts, key=len)
    lines = [", ".join(short_first), *parameter.secondary_opts]
    return "\n".join(f"{line} {metavar}".strip() for line in lines)


def _help_with_default(parameter: Any) -> str:
    """Return the help of a parameter with its default behind it."""
    shown = getattr(parameter, "show_default", None)
    default = f" [default: {shown}]" if isinstance(shown, str) else ""
    return f"{parameter.help}{' [required]' if parameter.required else default}"
