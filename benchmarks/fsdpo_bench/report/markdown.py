"""``report.md``: the numbers of a run as tables that read well as plain text too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fsdpo_cards.render import render

from fsdpo_bench.report.html import published_rows, settings
from fsdpo_bench.report.plots import points

Results = Mapping[str, Any]


def render_markdown(results: Results) -> str:
    """Render the report."""
    tasks, published = results["tasks"], published_rows(results)
    return render(
        Path(__file__).parent / "templates" / "report.md",
        filters={"points": points},
        results=results,
        samples=[
            (task["title"], f"{kind}@{k}", share)
            for task in tasks.values()
            for kind in ("avg", "pass", "maj")
            for k, share in task[f"{kind}_at_k"].items()
        ],
        published=published,
        reported=[name for name in tasks if any(name in row["values"] for row in published)],
        settings=settings(results["run"]),
    )
