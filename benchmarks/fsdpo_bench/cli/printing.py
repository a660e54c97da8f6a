"""Print the results of commands as tables and text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fsdpo_bench.prm.measure_prm import PrmMeasurements
from fsdpo_bench.prm.prmbench import ALTERATIONS, PrmBenchScores, StepErrorScores
from fsdpo_bench.report.terminal_tables import print_table, print_text
from fsdpo_bench.tasks.table import Task


def print_tasks(tasks: Sequence[Task]) -> None:
    """Print the benchmarks and their suites."""
    rows = []
    for task in tasks:
        count = "–" if task.count is None else f"{task.count:,}"
        suites = ", ".join(task.suites)
        rows.append((task.name, task.title, count, _task_location(task), suites, task.licence))
    print_table(("task", "benchmark", "problems>", "location", "suites", "licence"), rows)


def _task_location(task: Task) -> str:
    if task.hub:
        return task.hub.repo
    return f"{task.fetch.repo} (GitHub)" if task.fetch else "– (part of fsdpo)"


def print_prm(measurements: PrmMeasurements) -> None:
    """Print the measurements of a process reward model."""
    if measurements.prm_format is not None:
        prm_format = measurements.prm_format
        _print_field("PRM format", f"{prm_format['name']}, by {prm_format['evidence']}")
    if measurements.dataset is not None:
        for name, value in _dataset_rows(measurements.dataset):
            _print_field(name, value)
        if measurements.dataset["best_of"]:
            _print_best_of_n(measurements.dataset)
    for file, scores in measurements.processbench.items():
        print_text(f"\n{file}")
        for name, value in scores.rows():
            _print_field(name, value)
    if measurements.prmbench is not None:
        _print_prmbench(measurements.prmbench)


def _print_best_of_n(report: Mapping[str, Any]) -> None:
    """Print the accuracy of best-of-N by aggregate and N."""
    curves = report["best_of"]
    labels = {"pass": "a perfect PRM"}
    rows = [
        (labels.get(name, name), *(f"{100 * value:.1f}" for value in curve.values()))
        for name, curve in curves.items()
    ]
    print_table(("best-of-N by", *(f"N={size}>" for size in curves["pass"])), rows)
    problems = report["best_of_problems"]
    line = f"{problems:,} problems at every N"
    if left_out := report["best_of_left_out"]:
        line += (
            f"; {left_out:,} of {problems + left_out:,} problems are left out, because they have "
            f"fewer than {max(curves['pass'])} solutions"
        )
    print_text(line)


def _print_field(name: str, value: str) -> None:
    print_text(f"{name:<36}{value}")


def _print_prmbench(scores: PrmBenchScores) -> None:
    print_text(f"\nPRMBench: a step with a reward above {scores.threshold:g} counts as right")
    columns = (
        "",
        "PRMScore>",
        "F1>",
        "negative F1>",
        "right passed>",
        "wrong caught>",
        "first caught>",
        "gap to original>",
        "solutions>",
        "too long>",
    )
    labels = {name: alteration.title for name, alteration in ALTERATIONS.items()}
    rows = [
        (labels.get(name, name), *_step_error_cells(alteration_scores))
        for name, alteration_scores in scores.alterations.items()
        if alteration_scores.solutions + alteration_scores.unscored
    ]
    print_table(columns, rows)
    for name, score in scores.dimensions.items():
        _print_field(name, f"{100 * score:.1f}")


def _step_error_cells(scores: StepErrorScores) -> Iterator[str]:
    for value in (scores.score, scores.f1, scores.negative_f1):
        yield _format_percentage(value)
    for count, total in (scores.passed, scores.caught, scores.first_caught):
        yield f"{100 * count / total:.1f} of {total:,}" if total else "–"
    yield _format_percentage(scores.mean_gap_to_original)
    yield f"{scores.solutions:,}"
    yield f"{scores.unscored:,}"


def _format_percentage(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _dataset_rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "solutions", f"{report['solutions']:,} of {report['problems']:,} problems"
    for aggregate, ranking in report["ranking_auc"].items():
        text = _format_interval(ranking["value"], ranking["ci95"])
        yield f"ranking AUC, {aggregate}", f"{text}  ({ranking['n']:,} problems)"
    if steps := report["steps"]:
        counts = f"  ({steps['solutions']:,} solutions of {steps['problems']:,} problems)"
        yield "AUC of right over wrong steps", _format_interval(steps["auc"], steps["auc_ci95"])
        margin = _format_interval(steps["margin"], steps["ci95"])
        yield "reward before minus after the error", margin + counts


def _format_interval(value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" + (f"  [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")
