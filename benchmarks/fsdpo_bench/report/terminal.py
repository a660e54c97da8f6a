"""Report on a run, or on the comparison of two runs, in the terminal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from fsdpo_cards.render import format_amount

from fsdpo_bench.report.comparison_page import render_comparison
from fsdpo_bench.report.comparison_table import DIFF_COLUMNS, comparison_rows
from fsdpo_bench.report.render import write_report
from fsdpo_bench.report.tables import (
    check_names,
    print_json,
    print_table,
    print_text,
    split_names,
)
from fsdpo_bench.results.compare import ComparisonOptions, RunComparison, compare_runs
from fsdpo_bench.results.numbers import format_points, number_rows
from fsdpo_bench.results.result_types import (
    AccuracyDrop,
    AccuracyResult,
    AccuracySpread,
    Results,
    TaskResults,
)
from fsdpo_data.core.files import write_text

_MAX_QUESTION_CHARS = 90  #: Characters of a question in the list of changed problems.


def report_run(run: Path, budget_bytes: int, warn: Callable[[str], None], *, as_json: bool) -> None:
    """Write the reports of a complete run, and print its results.

    Args:
        run: Directory of the run.
        budget_bytes: Bytes of text in the problem list of ``report.html``.
        warn: Called with a message if a plot fails.
        as_json: Whether to print the content of ``results.json`` instead of a table.

    Raises:
        InputError: if the run has no records.
    """
    results = write_report(run, budget_bytes, warn)
    if as_json:
        print_json(results.to_json())
    else:
        print_results(results)


def report_comparison(
    run_a: Path,
    run_b: Path,
    options: ComparisonOptions,
    *,
    html: Path | None = None,
    count: int,
    columns: Sequence[str] = (),
    as_json: bool = False,
) -> None:
    """Compare two runs, write the page of the comparison, and print the differences.

    Args:
        run_a: The first run.
        run_b: The second run.
        options: The benchmarks, decoders and problems of the comparison.
        html: File of the page; None for no page.
        count: Number of changed problems to print.
        columns: Names of the columns, some with commas; none for all that fit the terminal.
        as_json: Whether to print the comparison as JSON instead of a table.

    Raises:
        InputError: if the runs cannot be compared, or a column is unknown.
    """
    comparison = compare_runs(run_a, run_b, options)
    if html is not None:
        write_text(html, render_comparison(run_a, run_b, comparison))
    if as_json:
        print_json(asdict(comparison))
    else:
        print_comparison(comparison, count, columns)


def print_results(results: Results) -> None:
    """Print the results by benchmark and decoder, the means of suites, and the results by group."""
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
    if (stats := results.answer_judge) is not None:
        print_text(f"The {stats.describe_decisions()}.")
    for task in results.tasks.values():
        _print_groups(task)


def _print_groups(task: TaskResults) -> None:
    """Print the accuracies of a benchmark by subject, level and other groups of its problems."""
    columns = ("decoder", "accuracy>", "problems>")
    for group, parts in task.groups.items():
        print_text(f"\n{task.title} by {group}")
        print_table((group, *columns), _group_rows(parts))
    for group, drops in task.accuracy_drops.items():
        print_text(f"\n{task.title}: accuracy drop from the original questions, by {group}")
        print_table((group, *columns), _group_rows(drops))
    if task.group_spread:
        n_parts = next(iter(task.group_spread.values())).parts
        print_text(f"\n{task.title}: spread over {n_parts} instances")
        print_table(
            ("decoder", "mean>", "standard deviation>", "lowest>", "highest>"),
            [
                (decoder, *(f"{100 * number:.1f}" for number in _spread_numbers(spread)))
                for decoder, spread in task.group_spread.items()
            ],
        )


def _group_rows(
    parts: Mapping[str, Mapping[str, AccuracyResult]] | Mapping[str, Mapping[str, AccuracyDrop]],
) -> Iterator[Sequence[str]]:
    """Yield one row per label of a group and decoder."""
    for label, by_decoder in parts.items():
        for decoder, result in by_decoder.items():
            yield label, decoder, format_points(result), f"{result.n:,}"


def _spread_numbers(spread: AccuracySpread) -> tuple[float, float, float, float]:
    return spread.mean, spread.deviation, spread.lowest, spread.highest


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
            other_accuracies = {
                "undecided as correct": result.upper_bound,
                "without the judge": result.without_judge,
                "undecided as correct, without the judge": result.upper_bound_without_judge,
            }
            for condition, accuracy in other_accuracies.items():
                if accuracy is not None:
                    cells = (format_points(accuracy), f"{accuracy.correct:g}", "", "", "")
                    yield task.title, f"{name}, {condition}", *cells
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
    check_names(names, DIFF_COLUMNS, field="columns")
    selected_names = names or [*DIFF_COLUMNS]
    optional_names = () if names else ("only-a", "only-b", "p")
    print_table(
        [DIFF_COLUMNS[name] for name in selected_names],
        [[row[name] for name in selected_names] for row in comparison_rows(comparison)],
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
