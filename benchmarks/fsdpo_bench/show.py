"""Tables for people."""

from __future__ import annotations

from typing import Literal

from fsdpo_bench.tasks import SUITES, TASKS


def print_tasks() -> None:
    """Print the benchmarks and the suites."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("task", "benchmark", "problems", "Hub dataset", "suites"):
        justify: Literal["left", "right"] = "right" if column == "problems" else "left"
        table.add_column(column, justify=justify, overflow="fold")
    for task in TASKS.values():
        suites = ", ".join(suite for suite, names in SUITES.items() if task.name in names)
        hub = task.hub.repo if task.hub else "– (give --data)"
        table.add_row(task.name, task.title, f"{task.count:,}", hub, suites)
    Console().print(table)
