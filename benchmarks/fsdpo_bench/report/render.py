"""Render the report of datasets as a page and as Markdown.

``report.html`` is a single file that opens from disk and loads nothing from the network.
``report.md`` contains the numbers as tables that are readable as plain text.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fsdpo_cards import benchmark_card
from fsdpo_cards.page import render_page
from fsdpo_cards.problem_list import DEFAULT_BUDGET_BYTES, ProblemList
from fsdpo_cards.render import render
from markupsafe import Markup

from fsdpo_bench.decoders.decoders import parse_result_name
from fsdpo_bench.metrics.measure import Decoded
from fsdpo_bench.metrics.pools import Pool
from fsdpo_bench.metrics.report_numbers import format_points, number_rows
from fsdpo_bench.metrics.result_records import Results
from fsdpo_bench.report import plots
from fsdpo_bench.report.choice_tables import choice_tables, listed_decoders
from fsdpo_bench.report.problem_list import build_problem_list
from fsdpo_bench.report.published import is_backbone, published_results_of
from fsdpo_bench.run_folder import RESULTS_FILE
from fsdpo_data.core.files import write_text
from fsdpo_data.core.statistics import Mean

TEMPLATES_FOLDER = Path(__file__).parent  #: Folder of the templates of pages and reports.
_REWARD_PLOTS = (plots.calibration_plot, plots.distribution_plot, plots.step_plot)
_MAX_TITLE_TASKS = 3  #: Benchmarks that a title names; for more, it names the means of suites.


def render_html(results: Results, problem_list: ProblemList, warn: Callable[[str], None]) -> str:
    """Render ``report.html``.

    Args:
        results: The results.
        problem_list: The problems of the page.
        warn: Called with a message if a plot fails.
    """

    def draw_or_warn(draw: Callable[[Any], str], plot_data: Any) -> Markup:
        try:
            return Markup(draw(plot_data))
        except Exception as error:
            warn(f"report.html lacks its {draw.__name__.replace('_', ' ')}: {error!r}")
            return Markup("")

    tasks = results.tasks
    accuracy_plot = draw_or_warn(plots.accuracy_plot, results)
    cost_plots = [draw_or_warn(plots.cost_plot, task) for task in tasks.values()]
    reward_plots = {
        model: [draw_or_warn(draw, rewards) for draw in _REWARD_PLOTS]
        for model, rewards in results.rewards.items()
        if rewards.calibration is not None
    }
    return render_page(
        TEMPLATES_FOLDER / "report.html",
        problem_list.page_data,
        {
            "listed": listed_decoders,
            "points": format_points,
            "style_class": plots.style_class,
            "numbers": partial(number_rows, output="page"),
        },
        title=_page_title(results),
        results=results,
        problem_list=problem_list,
        accuracy_plot=accuracy_plot,
        cost_plots=[plot for plot in cost_plots if plot],
        reward_plots=reward_plots,
        choice_tables=choice_tables(results),
        published_rows=_published_rows(results),
        published_labels=plots.published_labels(results),
        settings=_setting_rows(results.to_json()["run"]),
        has_costs=_has_costs(results),
        has_groups=any(task.groups for task in tasks.values()),
    )


def _has_costs(results: Results) -> bool:
    """Return whether a decoder has a cost; recorded responses may have none."""
    return any(cost.is_known for cost in results.cost.values())


def _page_title(results: Results) -> str:
    """Return the title of a page: the model, and the accuracies of the first decoder."""
    tasks = results.tasks
    accuracies: list[tuple[str, Mapping[str, Mean]]] = [
        (f"mean of {name}", suite.accuracies) for name, suite in results.suites.items()
    ]
    if len(tasks) <= _MAX_TITLE_TASKS or not accuracies:
        accuracies = [(task.title, task.accuracies) for task in tasks.values()]
    first_decoder = next((name for _, by_decoder in accuracies for name in by_decoder), "")
    parts = []
    for name, by_decoder in accuracies:
        if first_decoder in by_decoder:
            accuracy = by_decoder[first_decoder].value
            parts.append(name if accuracy is None else f"{name} {100 * accuracy:.1f}")
    numbers = f"{', '.join(parts)} ({first_decoder})" if parts else ""
    return " · ".join(filter(None, (results.run.sample.model.name, numbers)))


def render_markdown(results: Results) -> str:
    """Render ``report.md``."""
    tasks = results.tasks
    published = _published_rows(results)
    return render(
        TEMPLATES_FOLDER / "report.md",
        filters={"listed": listed_decoders, "points": format_points},
        results=results,
        has_costs=_has_costs(results),
        number_rows=[
            (task.title, row) for task in tasks.values() for row in number_rows(task, "markdown")
        ],
        choice_tables=choice_tables(results),
        published_rows=published,
        published_tasks=[name for name in tasks if any(name in row["values"] for row in published)],
        settings=_setting_rows(results.to_json()["run"]),
    )


def _published_rows(results: Results) -> list[dict[str, Any]]:
    """Return the greedy results of Full-Step-DPO for the measured benchmarks.

    Rows with the base model of the measured model come first. The PRM table and the results of
    other publishers are left out.
    """
    values_by_label: dict[str, dict[str, float]] = {}
    for task in results.tasks:
        for published in published_results_of(results, task):
            if published.table != "prm" and published.method:
                values_by_label.setdefault(published.label, {})[task] = published.value
    model = results.run.sample.model.name
    rows = []
    for label, values in values_by_label.items():
        is_own_backbone = is_backbone(label.partition(" + ")[0], model)
        rows.append({"label": label, "is_own_backbone": is_own_backbone, "values": values})
    return sorted(rows, key=lambda row: not row["is_own_backbone"])


def _setting_rows(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return settings as (name, value), with dots in nested names."""
    rows: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            rows += [(f"{name}.{inner_name}", text) for inner_name, text in _setting_rows(value)]
        elif value is not None:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            rows.append((name, text))
    return rows


def write_report(
    folder: Path,
    pool: Pool,
    results: Results,
    decoded: Decoded,
    *,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    warn: Callable[[str], None] = lambda text: None,
) -> None:
    """Write ``results.json``, ``report.md``, ``report.html``, and the card of a run.

    Args:
        folder: Folder of the files; for a run, its own folder.
        pool: The datasets.
        results: Their results.
        decoded: The choices of decoders.
        budget_bytes: Bytes of text in the problem list of ``report.html``.
        warn: Called with a message if a plot fails.
    """
    write_text(folder / RESULTS_FILE, results.to_text())
    if pool.run is not None:
        card = benchmark_card(results.to_json(), _decoder_titles(results), pool.run.decoders)
        write_text(folder / "README.md", card)
    write_text(folder / "report.md", render_markdown(results))
    problem_list = build_problem_list(pool, decoded, budget_bytes)
    page = render_html(results, problem_list, warn)
    write_text(folder / "report.html", page)


def _decoder_titles(results: Results) -> dict[str, str]:
    """Return the explanation of each decoder of a run, by the form of its result names."""
    setups = [parse_result_name(name) for name in results.cost]
    return {setup.decoder.form: setup.decoder.title for setup in setups if setup is not None}
