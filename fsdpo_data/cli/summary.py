"""A manifest as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsdpo_data.core.nouns import OUTCOMES
from fsdpo_data.dataset.describe import summary_rows


def print_summary(manifest: Mapping[str, Any], title: str) -> None:
    """Print the table to stdout."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in summary_rows(manifest):
        table.add_row(name, value)
    Console().print(table)


def print_changes(regraded: Mapping[str, Any]) -> None:
    """Print how many solutions went from which outcome to which."""
    from rich.console import Console
    from rich.table import Table

    counts = {(was, now): count for was, now, count in regraded["outcomes"]}
    outcomes = [each for each in OUTCOMES if any(each in pair for pair in counts)]
    title = f"\n{regraded['changed']:,} outcomes changed from {regraded['from']}"
    title += f" (rows) to {regraded['to']} (columns)"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for now in outcomes:
        table.add_column(now.replace("_", " "), justify="right")
    for was in outcomes:
        cells = [f"{counts.get((was, now), 0):,}" for now in outcomes]
        table.add_row(was.replace("_", " "), *cells)
    Console().print(table)
