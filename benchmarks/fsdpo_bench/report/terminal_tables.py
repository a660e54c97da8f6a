"""Print tables, plain text and JSON to the terminal."""

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fsdpo_data.core.errors import unknown_name_error
from fsdpo_data.core.terminal import strip_control_characters

_MAX_WORD_WIDTH = 20  #: Characters of a longer word may wrap in a text column.
_MIN_WORD_WIDTH = 7  #: The same on terminals that are too narrow for such words.
_UNLIMITED_WIDTH = 10_000  #: Characters; wider than any table.


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    optional_columns: Sequence[str] = (),
) -> None:
    """Print a table that fits the width of the terminal if possible.

    On narrow terminals, texts wrap between words, but numbers and row names do not. The table is
    wider than the terminal if it cannot shrink further. Without a terminal, nothing wraps.

    Args:
        columns: Names of the columns. A name that ends with ">" marks a column of numbers. If all
            names are empty, there is no header.
        rows: Cells by row; the first cell is the row name. Strings are plain text. Consecutive rows
            with the same name show it once.
        optional_columns: Names of columns to leave out on narrow terminals, in this order. A line
            after the table names them.
    """
    console = Console()
    all_rows = [list(row) for row in rows]
    names = list(columns)
    removed_names: list[str] = []
    for name in optional_columns if console.is_terminal else ():
        if _min_table_width(console, names, all_rows) > console.width and name in names:
            position = names.index(name)
            names = [*names[:position], *names[position + 1 :]]
            all_rows = [[*row[:position], *row[position + 1 :]] for row in all_rows]
            removed_names.append(name.rstrip(">"))
    word_width = _MAX_WORD_WIDTH
    if _min_table_width(console, names, all_rows) > console.width:
        word_width = _MIN_WORD_WIDTH
    width = _min_table_width(console, names, all_rows, word_width)
    console.width = max(console.width, width)
    console.print(_make_table(names, all_rows, word_width), soft_wrap=False, crop=False)
    if removed_names:
        print_text(f"left out for the width of the terminal: {', '.join(removed_names)}")


def _min_table_width(
    console: Console,
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    word_width: int = _MAX_WORD_WIDTH,
) -> int:
    """Return the width of a table whose texts wrap on terminals, and do not wrap elsewhere."""
    table = _make_table(columns, rows, word_width)
    if console.is_terminal:
        for column in table.columns:
            column.max_width = column.min_width
    unlimited = console.options.update(max_width=_UNLIMITED_WIDTH)
    return Measurement.get(console, unlimited, table).maximum


def _make_table(
    columns: Sequence[str], rows: Sequence[Sequence[str | Text]], word_width: int
) -> Table:
    """Return a table; numbers, row names and words up to a width do not wrap."""
    table = Table(box=None, pad_edge=False, show_header=any(columns))
    for index, column in enumerate(columns):
        is_number = column.endswith(">")
        can_wrap = index > 0 and not is_number
        words = [word for row in rows for word in str(row[index]).split()] if can_wrap else []
        table.add_column(
            column.rstrip(">"),
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=not can_wrap,
            min_width=min(max(map(len, words), default=1), word_width) if can_wrap else None,
        )
    previous_name: str | Text = ""
    for name, *cells in rows:
        row = ("" if name == previous_name else name, *cells)
        table.add_row(*(plain_text(cell) if isinstance(cell, str) else cell for cell in row))
        previous_name = name
    return table


def print_text(text: str, style: str = "", *, wrap: bool = False) -> None:
    """Print plain text; with ``wrap``, break long lines between words."""
    Console(highlight=False, soft_wrap=not wrap).print(plain_text(text, style))


def plain_text(text: str, style: str = "") -> Text:
    """Return text of a model or a benchmark as it is, without control characters."""
    return Text(strip_control_characters(text), style=style)


def split_names(values: Sequence[str]) -> list[str]:
    """Return the names in values such as ``a,b``, without repeated names."""
    names = (name.strip() for value in values for name in value.split(","))
    return list(dict.fromkeys(filter(None, names)))


def check_names(names: Iterable[str], known_names: Collection[str], *, field: str) -> None:
    """Check the names that a user gave.

    Args:
        names: The names.
        known_names: The valid names.
        field: Option with the names, for the error.

    Raises:
        InputError: if a name is unknown.
    """
    for name in names:
        if name not in known_names:
            raise unknown_name_error(field, name, known_names)


def print_json(value: Any) -> None:
    """Print a plain value as JSON."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
