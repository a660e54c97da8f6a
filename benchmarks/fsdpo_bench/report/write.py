"""From the records of a finished run to ``results.json``, reports, and a card for the Hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsdpo_bench.report.browse import BUDGET, browsable
from fsdpo_bench.report.render import render_html, render_markdown
from fsdpo_bench.results.summary import summarise
from fsdpo_bench.runs.records import read_config, read_records
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import explained, write_atomic


def write_report(
    run: Path, budget: int = BUDGET, warn: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Write ``results.json`` and the card, ``README.md``, then ``report.md`` and ``report.html``.

    Returns:
        The content of ``results.json``.

    Raises:
        InputError: if it holds no records.
    """
    from fsdpo_cards import benchmark_card

    results = summarise(read_records(run), read_config(run))
    total = sum(task["problems"] for task in results["tasks"].values())
    if not total:
        raise InputError(f"{run} holds no records. Finish it: run it with `resume=True`.")
    _write(run / "results.json", json.dumps(results, indent=1) + "\n")
    _write(run / "README.md", benchmark_card(results))
    _write(run / "report.md", render_markdown(results))
    shown = browsable(read_records(run), total, budget)
    _write(run / "report.html", render_html(results, shown, warn))
    return results


def _write(file: Path, text: str) -> None:
    """Write a file whole or not at all; a lone surrogate in a name is no reason to fail."""
    with explained(file):
        write_atomic(file, text.encode("utf-8", "backslashreplace"))
