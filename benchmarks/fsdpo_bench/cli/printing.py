"""Print the results of commands as tables and text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fsdpo_cards.render import format_amount, format_percent

from fsdpo_bench.cli.options import DIFF_COLUMNS
from fsdpo_bench.cli.tables import plain_text, print_table, print_text, split_names
from fsdpo_bench.prm.measure import PrmMeasurements
from fsdpo_bench.prm.prmbench import ALTERATIONS, PrmBenchScores, StepErrorScores
from fsdpo_bench.results.compare import PairedDifference, RunComparison
from fsdpo_bench.results.numbers import format_points, number_rows
from fsdpo_bench.results.paired_means import MEAN_TITLE, PairedMean
from fsdpo_bench.results.result_types import Results
from fsdpo_bench.tasks.table import Task
from fsdpo_bench.tasks.validate import TaskReport
from fsdpo_data.answers import Verdict
from fsdpo_data.answers.extraction.extract import is_marked_rule
from fsdpo_data.core.errors import unknown_name_error
from fsdpo_data.recorded.outputs import GradedResponse

_MAX_QUESTION_CHARS = 90  #: Characters of a question in the list of changed problems.


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
    """Print the scores of recorded responses with their 95 % intervals."""
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
    print_table(columns, map(_series_row, series))


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
    print_table(("", ""), [(plain_text(name, "bold"), value) for name, value in rows.items()])


def print_results(results: Results) -> None:
    """Print accuracy and cost by benchmark and decoder, then the means of suites."""
    columns: Sequence[str] = (
        "benchmark",
        "decoder",
        "accuracy>",
        "correct>",
        "problems>",
        "tokens>",
        "PRM calls>",
    )
    rows = list(_result_rows(results))
    if not any(cost.is_known for cost in results.cost.values()):
        columns = columns[:-2]
        rows = [row[:-2] for row in rows]
    print_table(columns, rows)


def _result_rows(results: Results) -> Iterator[Sequence[str]]:
    for task in results.tasks.values():
        for name, result in task.decoders.items():
            yield (
                task.title,
                name,
                format_points(result),
                f"{result.correct:g}",
                f"{result.n:,}",
                format_amount(result.cost.tokens),
                f"{result.cost.prm_calls:,.0f}",
            )
        for row in number_rows(task, "terminal"):
            yield task.title, row.title, row.text, "", f"{row.result.n:,}", "", ""
    for suite, suite_results in results.suites.items():
        for name, mean in suite_results.decoders.items():
            yield f"mean of {suite}", name, format_points(mean), "", f"{mean.n:,}", "", ""


def print_comparison(comparison: RunComparison, count: int, columns: Sequence[str] = ()) -> None:
    """Print the differences of two runs, then the first ``count`` changed problems.

    Args:
        comparison: The comparison.
        count: Number of changed problems to print.
        columns: Names of the columns, some with commas; none for all that fit the terminal.
    """
    names = split_names(columns)
    for name in names:
        if name not in DIFF_COLUMNS:
            raise unknown_name_error("columns", name, DIFF_COLUMNS)
    order = [*dict.fromkeys(delta.task for delta in comparison.deltas), MEAN_TITLE]
    rows = [*map(_difference_row, comparison.deltas), *map(_mean_row, comparison.means)]
    rows.sort(key=lambda row: order.index(row["benchmark"]))
    selected_names = names or [*DIFF_COLUMNS]
    optional_names = () if names else ("only-a", "only-b", "p")
    print_table(
        [DIFF_COLUMNS[name] for name in selected_names],
        [[row[name] for name in selected_names] for row in rows],
        optional_columns=[DIFF_COLUMNS[name] for name in optional_names],
    )
    for note in comparison.notes:
        print_text(f"note: {note}")
    if any(delta.clusters for delta in comparison.deltas):
        print_text("(n): number of base problems; intervals and p-values are over base problems.")
    for problem in comparison.changed[:count]:
        is_a_better = problem.better == "a"
        correct_answer = problem.answer_a if is_a_better else problem.answer_b
        wrong_answer = problem.answer_b if is_a_better else problem.answer_a
        question = " ".join(problem.question.split())[:_MAX_QUESTION_CHARS]
        print_text(
            f"{problem.task} {problem.problem_id}  only {problem.better.upper()}: gold "
            f"{problem.gold!r}, correct {correct_answer!r}, wrong {wrong_answer!r}  {question}"
        )
    n_changed = len(comparison.changed)
    if n_changed > count:
        print_text(f"{n_changed - count} more; --show {n_changed} shows all")


def _difference_row(delta: PairedDifference) -> dict[str, str]:
    return _row_cells(
        delta, delta.decoders, delta.correct_a / delta.n, delta.correct_b / delta.n
    ) | {"only-a": f"{delta.only_a:,}", "only-b": f"{delta.only_b:,}"}


def _mean_row(mean: PairedMean) -> dict[str, str]:
    return _row_cells(mean, mean.measure, mean.value_a, mean.value_b)


def _row_cells(
    row: PairedDifference | PairedMean, title: str, value_a: float, value_b: float
) -> dict[str, str]:
    """Return the cells of a difference by name of the column, in points."""
    low, high = (100 * bound for bound in row.ci95)
    p = ""
    if row.p is not None:
        p = f"{row.p:.4f}" if row.p >= 1e-4 else f"{row.p:.1e}"
    return {
        "benchmark": row.task,
        "decoder": title,
        "a": f"{100 * value_a:.1f}",
        "b": f"{100 * value_b:.1f}",
        "difference": f"{100 * row.difference:+.1f}",
        "interval": f"[{low:+.1f}, {high:+.1f}]",
        "only-a": "",
        "only-b": "",
        "p": p,
        "problems": f"{row.n:,}" + (f" ({row.clusters})" if row.clusters else ""),
    }


def print_prm(measurements: PrmMeasurements) -> None:
    """Print the measurements of a process reward model."""
    if measurements.prm_format is not None:
        prm_format = measurements.prm_format
        _print_field("PRM format", f"{prm_format['name']}, by {prm_format['evidence']}")
    if measurements.dataset is not None:
        for name, value in _dataset_rows(measurements.dataset):
            _print_field(name, value)
        curves = measurements.dataset["best_of"]
        labels = {"pass": "a perfect PRM"}
        rows = [
            (labels.get(name, name), *(f"{100 * value:.1f}" for value in curve.values()))
            for name, curve in curves.items()
        ]
        counts = measurements.dataset["best_of_problems"]
        rows.append(("problems", *(f"{count:,}" for count in counts.values())))
        print_table(("best-of-N by", *(f"N={size}>" for size in curves["pass"])), rows)
        for size, count in measurements.dataset["best_of_left_out"].items():
            if count:
                print_text(
                    f"N={size} leaves out {count:,} of {count + counts[size]:,} problems, because "
                    "they have fewer solutions"
                )
    for file, scores in measurements.processbench.items():
        print_text(f"\n{file}")
        for name, value in scores.rows():
            _print_field(name, value)
    if measurements.prmbench is not None:
        _print_prmbench(measurements.prmbench)


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
        yield f"ranking AUC, {aggregate}", f"{text}  ({ranking['problems']:,} problems)"
    if steps := report["steps"]:
        counts = f"  ({steps['solutions']:,} solutions of {steps['problems']:,} problems)"
        yield "AUC of right over wrong steps", _format_interval(steps["auc"], steps["auc_ci95"])
        margin = _format_interval(steps["margin"], steps["ci95"])
        yield "reward before minus after the error", margin + counts


def _format_interval(value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" + (f"  [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")
