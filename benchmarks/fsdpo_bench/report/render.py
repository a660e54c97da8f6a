"""Render the report of a run as a page and as Markdown.

``report.html`` is a single file that opens from disk and loads nothing from the network.
``report.md`` contains the numbers as tables that are readable as plain text.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from fsdpo_cards import benchmark_card
from fsdpo_cards.page import render_page
from fsdpo_cards.problem_list import DEFAULT_BUDGET_BYTES, ProblemList
from fsdpo_cards.render import render
from markupsafe import Markup

from fsdpo_bench.decoders import parse_result_name
from fsdpo_bench.report import plots
from fsdpo_bench.report.problem_list import build_problem_list
from fsdpo_bench.results.numbers import format_points, number_rows
from fsdpo_bench.results.published import is_backbone, published_results_for
from fsdpo_bench.results.result_types import (
    RESULTS_FILE,
    AccuracyResult,
    Results,
    RewardStatistics,
)
from fsdpo_bench.results.summary import summarise
from fsdpo_bench.runs.answer_judge import read_judge_stats
from fsdpo_bench.runs.records import RECORDS_FOLDER, read_config, read_records
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.failures import read_failures
from fsdpo_data.core.files import write_text
from fsdpo_data.core.statistics import Mean
from fsdpo_data.dataset.run import CONFIG_FILE

TEMPLATES_FOLDER = Path(__file__).parent  #: Folder of the templates of pages and reports.
_REWARD_PLOTS = (plots.calibration_plot, plots.distribution_plot, plots.step_plot)
_MAX_TITLE_TASKS = 3  #: Benchmarks that a title names; for more, it names the means of suites.


def render_html(
    results: Results, problem_list: ProblemList, warn: Callable[[str], None], date: str
) -> str:
    """Render ``report.html``.

    Args:
        results: The results of the run.
        problem_list: The problems of the page.
        warn: Called with a message if a plot fails.
        date: Date of the run.
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
    rewards = results.rewards
    reward_plots = []
    if rewards and _are_probabilities(rewards):
        reward_plots = [draw_or_warn(draw, rewards) for draw in _REWARD_PLOTS]
    return render_page(
        TEMPLATES_FOLDER / "report.html",
        problem_list.page_data,
        {
            "auc": format_auc,
            "points": format_points,
            "style_class": plots.style_class,
            "numbers": partial(number_rows, output="page"),
        },
        title=page_title(results, date),
        results=results,
        problem_list=problem_list,
        accuracy_plot=accuracy_plot,
        cost_plots=[plot for plot in cost_plots if plot],
        reward_plots=reward_plots,
        published_rows=published_rows(results),
        published_labels=plots.published_labels(results),
        settings=setting_rows(results.run.to_json()),
        has_costs=has_costs(results),
        has_groups=any(task.groups for task in tasks.values()),
    )


def has_costs(results: Results) -> bool:
    """Return whether a decoder has a cost; recorded responses may have none."""
    return any(cost.is_known for cost in results.cost.values())


def format_auc(ranking: Mean) -> str:
    """Format a ranking AUC with its interval and its number of problems."""
    assert ranking.value is not None and ranking.ci95 is not None  # checked by the templates
    problems = f"{ranking.n:,} problem{'s' if ranking.n != 1 else ''}"
    low, high = ranking.ci95
    return f"{ranking.value:.3f} [{low:.3f}, {high:.3f}] ({problems})"


def _are_probabilities(rewards: RewardStatistics) -> bool:
    """Tell whether the mean rewards of all bins are in [0, 1], as the plots require."""
    return all(0 <= reward_bin.reward <= 1 for reward_bin in rewards.calibration.bins)


def page_title(results: Results, date: str) -> str:
    """Return the title of a page: the model, the accuracies of the first decoder, and the date."""
    tasks = results.tasks
    accuracies: list[tuple[str, Mapping[str, AccuracyResult]]] = [
        (f"mean of {name}", suite.decoders) for name, suite in results.suites.items()
    ]
    if len(tasks) <= _MAX_TITLE_TASKS or not accuracies:
        accuracies = [(task.title, task.decoders) for task in tasks.values()]
    first_decoder = next(iter(accuracies[0][1]))
    parts = []
    for name, decoders in accuracies:
        if first_decoder in decoders:
            accuracy = decoders[first_decoder].accuracy
            parts.append(name if accuracy is None else f"{name} {100 * accuracy:.1f}")
    numbers = f"{', '.join(parts)} ({first_decoder})"
    return " · ".join(filter(None, (results.run.model.name, numbers, date)))


def render_markdown(results: Results) -> str:
    """Render ``report.md``."""
    tasks = results.tasks
    published = published_rows(results)
    return render(
        TEMPLATES_FOLDER / "report.md",
        filters={"auc": format_auc, "points": format_points},
        results=results,
        has_costs=has_costs(results),
        number_rows=[
            (task.title, row) for task in tasks.values() for row in number_rows(task, "markdown")
        ],
        published_rows=published,
        published_tasks=[name for name in tasks if any(name in row["values"] for row in published)],
        settings=setting_rows(results.run.to_json()),
    )


def published_rows(results: Results) -> list[dict[str, Any]]:
    """Return the greedy results of Full-Step-DPO for the benchmarks of a run.

    Rows with the base model of the run come first. The PRM table and the results of other
    publishers are left out.
    """
    values_by_label: dict[str, dict[str, float]] = {}
    for task in results.tasks:
        for published in published_results_for(task):
            if published.table != "prm" and published.method:
                values_by_label.setdefault(published.label, {})[task] = published.value
    model = results.run.model.name
    rows = []
    for label, values in values_by_label.items():
        is_own_backbone = is_backbone(label.partition(" + ")[0], model)
        rows.append({"label": label, "is_own_backbone": is_own_backbone, "values": values})
    return sorted(rows, key=lambda row: not row["is_own_backbone"])


def setting_rows(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the settings of a run as (name, value), with dots in nested names."""
    rows: list[tuple[str, str]] = []
    for name, value in run.items():
        if isinstance(value, Mapping):
            rows += [(f"{name}.{inner_name}", text) for inner_name, text in setting_rows(value)]
        elif value is not None:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            rows.append((name, text))
    return rows


def write_report(
    run: Path,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    warn: Callable[[str], None] = lambda text: None,
) -> Results:
    """Write ``results.json``, the card ``README.md``, ``report.md`` and ``report.html``.

    Args:
        run: Directory of the run.
        budget_bytes: Bytes of text in the problem list of ``report.html``.
        warn: Called with a message if a plot fails.

    Returns:
        The results of the run.

    Raises:
        InputError: if the run has no records.
    """
    failed = Counter(record["task"] for record in read_failures(run))
    results = summarise(read_records(run), read_config(run), read_judge_stats(run), failed)
    total = sum(task.problems for task in results.tasks.values())
    if not total:
        raise InputError(f"{run} contains no records. Continue the run with `resume=True`.")
    write_text(run / RESULTS_FILE, results.to_text())
    write_text(run / "README.md", benchmark_card(results.to_json(), _decoder_titles(results)))
    write_text(run / "report.md", render_markdown(results))
    problem_list = build_problem_list(read_records(run), total, budget_bytes)
    write_text(run / "report.html", render_html(results, problem_list, warn, run_date(run)))
    return results


def _decoder_titles(results: Results) -> dict[str, str]:
    """Return the explanation of each decoder of a run, by the form of its result names."""
    setups = [parse_result_name(name) for name in results.cost]
    return {setup.decoder.form: setup.decoder.title for setup in setups if setup is not None}


def run_date(run: Path) -> str:
    """Return the date (UTC) of the last record of a run, or of its start if it has no records."""
    files = [*(run / RECORDS_FOLDER).glob("*"), run / CONFIG_FILE]
    timestamp = max(file.stat().st_mtime for file in files)
    return datetime.fromtimestamp(timestamp, UTC).date().isoformat()
