"""Print the results of commands as tables and text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fsdpo_cards.render import format_percent

from fsdpo_bench.prm.measure import PrmMeasurements
from fsdpo_bench.prm.prmbench import ALTERATIONS, PrmBenchScores, StepErrorScores
from fsdpo_bench.report.tables import plain_text, print_table, print_text
from fsdpo_bench.results.baselines import ChoiceAccuracy
from fsdpo_bench.results.numbers import format_points
from fsdpo_bench.runs.validate import TaskReport
from fsdpo_bench.tasks.table import Task
from fsdpo_data.answers import Verdict
from fsdpo_data.answers.extraction.extract import is_marked_rule
from fsdpo_data.exchange.outputs import GradedResponse


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


def print_reports(reports: Sequence[TaskReport]) -> None:
    """Print the validation of benchmarks: a table, then all exceptions."""
    columns = ("benchmark", "problems>", "golds>", "valid>", "digest", "result", "golds read as")
    print_table(columns, map(_report_row, reports))
    for report in reports:
        if report.error:
            print_text(f"\n{report.task.title}: {report.error}")
        if report.findings or report.task.defects:
            print_text(f"\n{report.task.title}")
        for defect in report.task.defects:
            print_text(f"  known: {defect}")
        for finding in report.findings:
            mark = "unexpected" if finding.is_unexpected else "known"
            style = "red" if finding.is_unexpected else ""
            text = f"  row {finding.row:>4}  {mark}  {finding.gold!r}: {finding.description}"
            print_text(text, style)


def _report_row(report: TaskReport) -> Sequence[Any]:
    digest = report.digest
    if report.error:
        digest = "–"
    elif not report.has_known_digest:
        digest = f"{report.digest} (unknown)"
    return (
        report.task.title,
        f"{report.problems:,}",
        f"{report.golds:,}",
        f"{report.right:,}",
        digest,
        "ok" if report.has_passed else plain_text("not ok", "red"),
        ", ".join(f"{kind} {count:,}" for kind, count in report.kinds.items()),
    )


def print_series(series: Sequence[Mapping[str, Any]]) -> None:
    """Print the scores of recorded responses with their 95 % intervals.

    A series with undecided answers has a second row, in which they count as correct.
    """
    columns = (
        "series",
        "correct>",
        "responses>",
        "accuracy",
        "marked>",
        "exact>",
        "published>",
        "differ>",
        "outcomes",
    )
    rows = []
    for scores in series:
        rows.append(_series_row(scores))
        if scores["upper_bound"] > scores["correct"]:
            rows.append(_upper_bound_row(scores))
    print_table(columns, rows)


def _series_row(scores: Mapping[str, Any]) -> Sequence[str]:
    published = ("–", "–")
    if scores["published_correct"] is not None:
        published = (f"{scores['published_correct']:,}", f"{scores['disputed']:,}")
    other_outcomes = [
        f"{count:,} {outcome.replace('_', ' ')}"
        for outcome, count in scores["outcomes"].items()
        if outcome != "correct"
    ]
    accuracy = scores["correct"] / scores["n"] if scores["n"] else None
    return (
        scores["series"] or "all",
        f"{scores['correct']:,}",
        f"{scores['n']:,}",
        format_percent(accuracy, scores["ci95"]),
        f"{scores['marked_correct']:,}",
        f"{scores['exact_correct']:,}",
        *published,
        ", ".join(other_outcomes),
    )


def _upper_bound_row(scores: Mapping[str, Any]) -> Sequence[str]:
    """Return the row of a series in which undecided answers count as correct."""
    upper_bound = scores["upper_bound"]
    name = f"{scores['series'] or 'all'}, undecided as correct"
    accuracy = format_percent(upper_bound / scores["n"], scores["upper_bound_ci95"])
    return (name, f"{upper_bound:,}", "", accuracy, "", "", "", "", "")


def print_baselines(rows: Sequence[ChoiceAccuracy], run_names: Sequence[str]) -> None:
    """Print the accuracies of choices by benchmark, with their 95 % intervals.

    Args:
        rows: The accuracies.
        run_names: Names of the runs, for the columns.
    """
    columns = ["", "choice", *(f"{name}>" for name in run_names)]
    if len(run_names) == 2:
        columns.append("difference>")
    for task in dict.fromkeys(row.task for row in rows):
        task_rows = [row for row in rows if row.task == task]
        n = max(accuracy.n for row in task_rows for accuracy in row.accuracies)
        print_text(f"{task}: accuracy (%) on {n:,} problems, with 95 % intervals")
        print_table(columns, [_baseline_row(row) for row in task_rows])


def _baseline_row(row: ChoiceAccuracy) -> list[str]:
    cells = [row.choice.name, row.choice.description, *map(format_points, row.accuracies)]
    if row.difference is not None:
        low, high = row.difference.ci95
        cells.append(f"{100 * row.difference.value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]")
    return cells


def print_disputed(responses: Sequence[GradedResponse], count: int) -> None:
    """Print the first responses whose verdict differs from the published verdict."""
    for response in responses[:count]:
        recorded = response.recorded_response
        verdict = response.verdict
        series = f" {recorded.series}" if recorded.series else ""
        print_text(
            f"row {recorded.row}{series}: gold {recorded.gold!r}, answer {verdict.answer!r}: "
            f"{verdict.status} ({verdict.rule}), published as "
            f"{'correct' if recorded.correct else 'incorrect'}"
        )
    if len(responses) > count:
        print_text(f"{len(responses) - count} more; --show {len(responses)} shows all")


def print_verdict(gold: str, verdict: Verdict) -> None:
    """Print one verdict with its rules and the parsed forms of both answers."""
    extraction, _, comparison = verdict.rule.partition("/")
    rows = {
        "status": verdict.status,
        "gold": gold,
        "answer": "none" if verdict.answer is None else verdict.answer,
        "extracted by": extraction + ("" if is_marked_rule(extraction) else " (not marked)"),
        "compared by": comparison or "–",
        "gold is read as": verdict.gold_form or "–",
        "answer is read as": verdict.answer_form or "–",
    }
    if verdict.unread:
        rows["not read"] = verdict.unread
    print_table(("", ""), [(plain_text(name, "bold"), value) for name, value in rows.items()])


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
