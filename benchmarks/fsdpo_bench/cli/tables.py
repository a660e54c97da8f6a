"""Tables on the terminal, where what models wrote is text and nothing else."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

#: Characters that a column of words keeps on the narrowest terminal.
_LEAST = 7


def make_table(*columns: str, header: bool = True) -> Table:
    """Make a table; a column whose name ends in ">" is set flush right.

    On a narrow terminal words fold before numbers do, and no column goes.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=header)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.endswith(">") else "left"
        number = justify == "right"
        least = None if number else _LEAST
        name = column.rstrip(">")
        table.add_column(name, justify=justify, overflow="fold", no_wrap=number, min_width=least)
    return table


def print_table(table: Table) -> None:
    """Print it as wide as the terminal is; whole where there is none, or where it is too narrow."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console()
    free = console.options.update(max_width=10_000)
    needed = Measurement.get(console, free, table)
    console.width = max(console.width, needed.minimum if console.is_terminal else needed.maximum)
    console.print(table, soft_wrap=False, crop=False)


def plain(text: str, style: str = "") -> Text:
    """Return text of a model or a benchmark as it is shown: no markup, no terminal escapes."""
    from rich.text import Text

    return Text("".join(map(_visible, text)), style=style)


def _visible(character: str) -> str:
    """Return a character, or a picture of one that steers terminals or the direction of text."""
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf"):
        return character
    return chr(0x2400 + ord(character)) if character < " " else "\ufffd"


def add_row(table: Table, *cells: str | Text) -> None:
    """Add a row whose cells are plain text."""
    table.add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in cells))
