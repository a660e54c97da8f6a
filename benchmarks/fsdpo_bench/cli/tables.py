"""Print tables and plain text to the terminal."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fsdpo_data.core.terminal import strip_control_characters

_MIN_COLUMN_WIDTH = 7  #: Minimum characters of a text column on narrow terminals.


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Print a table that fits the width of the terminal if possible.

    On narrow terminals, texts wrap, but numbers and row names do not. The table is wider than the
    terminal if it cannot shrink further. Without a terminal, nothing wraps.

    Args:
        columns: Names of the columns. A name that ends with ">" marks a column of numbers. If all
            names are empty, there is no header.
        rows: Cells by row; the first cell is the row name. Strings are plain text. Consecutive rows
            with the same name show it once.
    """
    table = Table(box=None, pad_edge=False, show_header=any(columns))
    for index, column in enumerate(columns):
        is_number = column.endswith(">")
        no_wrap = is_number or index == 0
        table.add_column(
            column.rstrip(">"),
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=no_wrap,
            min_width=None if no_wrap else _MIN_COLUMN_WIDTH,
        )
    previous_name: str | Text = ""
    for name, *cells in rows:
        row = ("" if name == previous_name else name, *cells)
        table.add_row(*(plain_text(cell) if isinstance(cell, str) else cell for cell in row))
        previous_name = name
    console = Console()
    text_columns = [column for column in table.columns if not column.no_wrap]
    if console.is_terminal:
        # Shrink the text columns while rich measures the minimum width of the table.
        for text_column in text_columns:
            text_column.max_width = _MIN_COLUMN_WIDTH
    unlimited = console.options.update(max_width=10_000)
    console.width = max(console.width, Measurement.get(console, unlimited, table).maximum)
    for text_column in text_columns:
        text_column.max_width = None
    console.print(table, soft_wrap=False, crop=False)


def print_text(text: str, style: str = "", *, wrap: bool = False) -> None:
    """Print plain text; with ``wrap``, break long lines between words."""
    Console(highlight=False, soft_wrap=not wrap).print(plain_text(text, style))


def plain_text(text: str, style: str = "") -> Text:
    """Return text of a model or a benchmark as it is, without control characters."""
    return Text(strip_control_characters(text), style=style)
