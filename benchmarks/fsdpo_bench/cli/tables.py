"""Tables on the terminal, where what models wrote is text and nothing else."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

#: Characters that a column of words keeps on the narrowest terminal.
_LEAST = 7


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Print rows as wide as the terminal is; whole where there is none, or where it is too narrow.

    On a narrow terminal words fold before numbers do, and no column goes.

    Args:
        columns: Their names; one that ends in ">" is of numbers. Without any name there is no head.
        rows: Cells that are strings are plain text.
    """
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=any(columns))
    for column in columns:
        number = column.endswith(">")
        table.add_column(
            column.rstrip(">"),
            justify="right" if number else "left",
            overflow="fold",
            no_wrap=number,
            min_width=None if number else _LEAST,
        )
    for row in rows:
        table.add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in row))
    console = Console()
    free = console.options.update(max_width=10_000)
    needed = Measurement.get(console, free, table)
    console.width = max(console.width, needed.minimum if console.is_terminal else needed.maximum)
    console.print(table, soft_wrap=False, crop=False)


def say(text: str, style: str = "", *, wrap: bool = False) -> None:
    """Print plain text; lines are folded between words only if ``wrap``."""
    from rich.console import Console

    Console(highlight=False, soft_wrap=not wrap).print(plain(text, style))


def plain(text: str, style: str = "") -> Text:
    """Return text of a model or a benchmark as it is shown: no markup, no terminal escapes."""
    from rich.text import Text

    return Text("".join(map(_visible, text)), style=style)


def _visible(character: str) -> str:
    """Return a character, or a picture of one that steers terminals or the direction of text."""
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf"):
        return character
    return chr(0x2400 + ord(character)) if character < " " else "\ufffd"
