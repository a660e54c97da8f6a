"""The report as a page and as text.

``report.html`` is one file with everything in it, which opens from disk and asks no network;
``report.md`` has the numbers as tables that read well as plain text too.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fsdpo_cards import benchmark_card
from fsdpo_cards.pages.page import render_page
from fsdpo_cards.pages.problem_list import BUDGET, ProblemList
from fsdpo_cards.render import render
from markupsafe import Markup

from fsdpo_bench.report import plots
from fsdpo_bench.report.problem_list import build_problem_list
from fsdpo_bench.results.published import is_backbone, published_results_for
from fsdpo_bench.results.result_types import Results
from fsdpo_bench.results.summary import summarise
from fsdpo_bench.runs.records import RECORDS, read_config, read_records
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import write_text
from fsdpo_data.dataset.run import CONFIG_FILE

TEMPLATES = Path(__file__).parent / "templates"
_OF_REWARDS = (plots.calibration_plot, plots.distribution_plot, plots.step_plot)
_NAMED = 3  #: Benchmarks that a title names one by one; of more, the means.


def render_html(
    results: Results, shown: ProblemList, warn: Callable[[str], None], date: str
) -> str:
    """Render ``report.html``; ``date`` is when the run was made."""

    def draw_or_warn(draw: Callable[[Any], str], what: Any) -> Markup:
        try:
            return Markup(draw(what))
        except Exception as error:
            warn(f"report.html lacks its {draw.__name__.replace('_', ' ')}: {error!r}")
            return Markup("")

    tasks, rewards = results["tasks"], results["rewards"]
    if rewards and any(not 0 <= each["reward"] <= 1 for each in rewards["calibration"]["bins"]):
        rewards = None  # no probabilities, which the plots are of
    return render_page(
        TEMPLATES / "report.html",
        shown.data,
        {"points": plots.points, "colour": plots.colour},
        title=title(results, date),
        results=results,
        shown=shown,
        accuracy=draw_or_warn(plots.accuracy_plot, results),
        costs=[plot for task in tasks.values() if (plot := draw_or_warn(plots.cost_plot, task))],
        rewards=[draw_or_warn(each, rewards) for each in _OF_REWARDS] if rewards else [],
        published=published_rows(results),
        settings=settings(results["run"]),
        groups=any(task["groups"] for task in tasks.values()),
    )


def title(results: Results, date: str) -> str:
    """Say which model was measured on what, and the first decoder's numbers: a page's title."""
    tasks, means = results["tasks"], results["suites"].items()
    named = [(f"mean of {name}", dict(found["decoders"])) for name, found in means]
    if len(tasks) <= _NAMED or not named:
        named = [(task["title"], dict(task["decoders"])) for task in tasks.values()]
    decoder = next(iter(named[0][1]))
    known = [(name, found[decoder]["accuracy"]) for name, found in named if decoder in found]
    parts = [name if share is None else f"{name} {100 * share:.1f}" for name, share in known]
    told = f"{', '.join(parts)} ({decoder})"
    return " · ".join(filter(None, (results["run"]["model"]["name"], told, date)))


def render_markdown(results: Results) -> str:
    """Render ``report.md``."""
    tasks: Mapping[str, Any] = results["tasks"]
    published = published_rows(results)
    return render(
        TEMPLATES / "report.md",
        filters={"points": plots.points},
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


def published_rows(results: Results) -> list[dict[str, Any]]:
    """Return the paper's greedy rows for the benchmarks of a run, the run's backbone first."""
    cells: dict[str, dict[str, float]] = {}
    for task in results["tasks"]:
        for each in published_results_for(task):
            if each.table != "prm" and each.method:
                cells.setdefault(each.label, {})[task] = each.value
    rows = []
    for label, values in cells.items():
        own = is_backbone(label.partition(" + ")[0], results["run"]["model"]["name"])
        rows.append({"label": label, "own": own, "values": values})
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


def write_report(
    run: Path, budget: int = BUDGET, warn: Callable[[str], None] = lambda text: None
) -> Results:
    """Write ``results.json`` and the card, ``README.md``, then ``report.md`` and ``report.html``.

    Returned is the content of ``results.json``.

    Raises:
        InputError: if it holds no records.
    """
    results = summarise(read_records(run), read_config(run))
    total = sum(task["problems"] for task in results["tasks"].values())
    if not total:
        raise InputError(f"{run} holds no records. Finish it: run it with `resume=True`.")
    write_text(run / "results.json", json.dumps(results, indent=1) + "\n")
    write_text(run / "README.md", benchmark_card(results))
    write_text(run / "report.md", render_markdown(results))
    shown = build_problem_list(read_records(run), total, budget)
    write_text(run / "report.html", render_html(results, shown, warn, date_of(run)))
    return results


def date_of(run: Path) -> str:
    """Return the day, in UTC, on which a run got its last record, or was begun."""
    last = max(file.stat().st_mtime for file in [*(run / RECORDS).glob("*"), run / CONFIG_FILE])
    return datetime.fromtimestamp(last, UTC).date().isoformat()
