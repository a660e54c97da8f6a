"""``report.html``: one file with everything in it, which opens from disk and asks no network."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from fsdpo_bench.report.browse import Browsable
from fsdpo_bench.report.plots import (
    accuracy_plot,
    calibration_plot,
    colour,
    cost_plot,
    distribution_plot,
    points,
    step_plot,
)
from fsdpo_bench.results.published import is_backbone, published_for

Results = Mapping[str, Any]

_OF_REWARDS = (calibration_plot, distribution_plot, step_plot)


def render_html(
    results: Results, shown: Browsable, warn: Callable[[str], None] = lambda text: None
) -> str:
    """Render the report.

    Args:
        results: The content of ``results.json``.
        shown: The problems for the browser.
        warn: Told of a picture that could not be drawn; the page is the same without it.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True
    )
    environment.filters.update(points=points, colour=colour)
    script = _read("report.js")
    rewards = results["rewards"]

    def drawn(draw: Callable[[Results], str], what: Results) -> Markup:
        try:
            return Markup(draw(what))
        except Exception as error:
            warn(f"report.html lacks its {draw.__name__.replace('_', ' ')}: {error!r}")
            return Markup("")

    return environment.from_string(_read("report.html")).render(
        results=results,
        shown=shown,
        style=Markup(_read("report.css")),
        script=Markup(script),
        script_hash=_csp_hash(script),
        data=Markup(_as_data({"problems": shown.problems, "explanations": shown.explanations})),
        accuracy=drawn(accuracy_plot, results),
        costs=[plot for task in results["tasks"].values() if (plot := drawn(cost_plot, task))],
        rewards=[drawn(each, rewards) for each in _OF_REWARDS] if rewards else [],
        published=published_rows(results),
        settings=settings(results["run"]),
        groups=any(task["groups"] for task in results["tasks"].values()),
    )


def published_rows(results: Results) -> list[dict[str, Any]]:
    """Return the paper's greedy rows for the benchmarks of a run, the run's backbone first."""
    cells: dict[str, dict[str, float]] = {}
    for task in results["tasks"]:
        for each in published_for(task):
            if each.table != "prm" and each.method:
                cells.setdefault(each.label, {})[task] = each.value
    rows = [
        {
            "label": label,
            "own": is_backbone(label.partition(" + ")[0], results["run"]["model"]["name"]),
            "values": values,
        }
        for label, values in cells.items()
    ]
    return sorted(rows, key=lambda row: not row["own"])


def settings(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what decided the output as (name, value), nested names joined by dots."""
    rows: list[tuple[str, str]] = []
    for name, value in run.items():
        if isinstance(value, Mapping):
            rows += [(f"{name}.{inner}", text) for inner, text in settings(value)]
        elif value is not None:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            rows.append((name, text))
    return rows


def _read(name: str) -> str:
    return (files(__package__) / "templates" / name).read_text(encoding="utf-8")


def _as_data(value: Any) -> str:
    """Write JSON that can stand inside a ``<script>``: no ``<`` ends it, no character breaks it."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _csp_hash(script: str) -> str:
    """Return the only script that the page's security policy lets run."""
    hashed = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(hashed).decode()}"
