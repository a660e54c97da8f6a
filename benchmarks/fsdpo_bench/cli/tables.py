"""Tables on the terminal."""

from __future__ import annotations

from typing import Any, Literal


def make_table(*columns: str, header: bool = True) -> Any:
    """Make a table; a column whose name ends in ">" is set flush right.

    On a narrow terminal words fold before numbers and names of decoders do.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=header)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.endswith(">") else "left"
        whole = justify == "right" or column == "decoder"
        table.add_column(column.rstrip(">"), justify=justify, overflow="fold", no_wrap=whole)
    return table


def print_table(table: Any) -> None:
    """Print it as wide as the terminal is."""
    from rich.console import Console

    Console().print(table)
