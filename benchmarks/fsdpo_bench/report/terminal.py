"""Report on datasets, or on the comparison of two, in the terminal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from fsdpo_cards.render import format_amount

from fsdpo_bench.decoders.decoders import parse_result_name
from fsdpo_bench.metrics.compare import (
    Comparison,
    ComparisonOptions,
    PairedDifference,
    compare_pools,
    left_out_notes,
    pair_problems,
    paired_differences,
    problem_notes,
    unscored_notes,
)
from fsdpo_bench.metrics.disagreements import VerdictComparison
from fsdpo_bench.metrics.pools import load_pools
from fsdpo_bench.metrics.report_numbers import format_points, number_rows
from fsdpo_bench.metrics.result_records import (
    AccuracySpread,
    Results,
    TaskResults,
)
from fsdpo_bench.metrics.reward_statistics import describe_unscored
from fsdpo_bench.metrics.setting_notes import reward_model_notes, setting_notes
from fsdpo_bench.report.choice_tables import choice_tables, listed_decoders
from fsdpo_bench.report.comparison_page import render_comparison
from fsdpo_bench.report.comparison_table import DIFF_COLUMNS, comparison_rows
from fsdpo_bench.report.reports import Report
from fsdpo_bench.report.terminal_tables import (
    check_names,
    print_json,
    print_table,
    print_text,
    split_names,
)
from fsdpo_data.core.files import write_text
from fsdpo_data.core.statistics import Mean

_MAX_QUESTION_CHARS = 90  #: Characters of a question in the lists of problems.


def print_reports(reports: Sequence[Report], *, as_json: bool) -> None:
    """Print the results: of one pool in full, of several next to each other."""
    results = [report.results for report in reports]
    if as_json:
        contents = [entry.to_json() for entry in results]
        print_json(contents[0] if len(contents) == 1 else contents)
    elif len(results) == 1:
        print_results(results[0])
    else:
        _print_columns(reports)


def _print_columns(reports: Sequence[Report]) -> None:
    """Print the accuracies of the common benchmarks and decoders, one pool per column."""
    first, *other_tasks = (report.results.tasks for report in reports)
    common_tasks = [name for name in first if all(name in tasks for tasks in other_tasks)]
    if not common_tasks:
        for report in reports:
            print_text(f"\n{report.pool.name}")
            print_results(report.results)
        return
    differences = _differences(reports, common_tasks)
    for name in common_tasks:
        tasks = [report.results.tasks[name] for report in reports]
        print_text(f"\n{tasks[0].title}: accuracy (%), with 95 % intervals")
        columns = ["", "choice", *(f"{report.pool.name}>" for report in reports)]
        if name in differences:
            columns.append("difference>")
        print_table(columns, _column_rows(tasks, differences.get(name)))
        counts = ", ".join(
            f"{report.pool.name} {_counted_problems(task):,}"
            for report, task in zip(reports, tasks, strict=True)
        )
        print_text(f"problems: {counts}")
    for note in _column_notes(reports, common_tasks):
        print_text(f"note: {note}")


def _column_notes(reports: Sequence[Report], common_tasks: Sequence[str]) -> list[str]:
    """Name what the columns leave out, and the settings in which they differ."""
    pools = [report.pool for report in reports]
    notes = setting_notes(pools)
    for name in common_tasks:
        common_decoders = set.intersection(*(set(report.decoded[name]) for report in reports))
        choices = [
            (decoder, [report.decoded[name][decoder].reward_model for report in reports])
            for decoder in reports[0].decoded[name]
            if decoder in common_decoders
        ]
        notes += reward_model_notes(pools, choices)
        for pool in pools:
            notes += left_out_notes(pool.name, pool.benchmarks[name])
            notes += unscored_notes(pool.name, pool.benchmarks[name])
        for pool in pools[1:]:
            pair = pair_problems(pools[0].benchmarks[name], pool.benchmarks[name])
            notes += filter(None, [pair.describe_other_problems(pools[0].name, pool.name)])
            notes += problem_notes(pair)
        for report in reports:
            omitted_names = [key for key in report.decoded[name] if key not in common_decoders]
            notes += _describe_omitted(report, omitted_names)
    for report in reports:
        notes += _describe_omitted(report, [n for n in report.decoded if n not in common_tasks])
    return list(dict.fromkeys(notes))


def _describe_omitted(report: Report, names: Sequence[str]) -> list[str]:
    """Name benchmarks or decoders of one pool that are not in all columns."""
    return [f"of {report.pool.name}, not in all columns: {', '.join(names)}"] if names else []


def _differences(
    reports: Sequence[Report], common_tasks: Sequence[str]
) -> dict[str, dict[str, PairedDifference]]:
    """Return the paired differences of two pools with equal problems, by benchmark and measure."""
    if len(reports) != 2:
        return {}
    first, second = reports
    differences = {}
    for name in common_tasks:
        pair = pair_problems(first.pool.benchmarks[name], second.pool.benchmarks[name])
        has_equal_problems = not pair.describe_other_problems("A", "B")
        if has_equal_problems and pair.has_counted_problems:
            differences[name] = paired_differences(pair, first.decoded[name], second.decoded[name])
    return differences


def _column_rows(
    tasks: Sequence[TaskResults], differences: Mapping[str, PairedDifference] | None
) -> Iterator[list[str]]:
    """Yield a row per number and per decoder that all pools have, with the paired difference."""

    def row(name: str, description: str, cells: Iterable[str]) -> list[str]:
        if differences is None:
            return [name, description, *cells]
        difference = differences.get(name)
        return [name, description, *cells, "" if difference is None else format_gain(difference)]

    numbers = [{entry.title: entry.text for entry in number_rows(task, "page")} for task in tasks]
    titles = [title for title in numbers[0] if all(title in texts for texts in numbers)]
    for title in (title for title in titles if title.startswith("avg@")):
        yield row(title, "an average sample", (texts[title] for texts in numbers))
    for decoder in tasks[0].decoders:
        if all(decoder in task.decoders for task in tasks):
            cells = (format_points(task.decoders[decoder].accuracy) for task in tasks)
            yield row(decoder, describe_choice(decoder), cells)
    for title in (title for title in titles if title.startswith("pass@")):
        yield row(title, "a perfect choice, the upper bound", (texts[title] for texts in numbers))


def format_gain(paired: PairedDifference) -> str:
    """Format a difference with its interval in points, with signs."""
    low, high = (100 * bound for bound in paired.difference.ci95)
    return f"{100 * paired.difference.value:+.1f} [{low:+.1f}, {high:+.1f}]"


def describe_choice(name: str) -> str:
    """Return the title of a decoder with its number of samples."""
    setup = parse_result_name(name)
    if setup is None:
        return ""
    return setup.decoder.title.replace("K samples", f"{setup.k} samples")


def print_disagreements(name: str, comparison: VerdictComparison, count: int) -> None:
    """Print the number and the first of the solutions whose verdict differs from the imported one.

    Args:
        name: Name of the dataset.
        comparison: The verdicts.
        count: Number of solutions to print.
    """
    differing = comparison.disagreements
    print_text(f"{name}: {len(differing):,} of {comparison.compared:,} recorded verdicts differ")
    for entry in differing[:count]:
        recorded = "correct" if entry.imported_correct else "incorrect"
        question = " ".join(entry.question.split())[:_MAX_QUESTION_CHARS]
        print_text(
            f"{entry.solution_id}: gold {entry.gold!r}, answer {entry.answer!r}: "
            f"{entry.outcome}, recorded as {recorded}  {question}"
        )
    if len(differing) > count:
        print_text(f"{len(differing) - count:,} more; --show {len(differing)} shows all")


def report_comparison(
    path_a: Path,
    path_b: Path,
    options: ComparisonOptions,
    *,
    html: Path | None = None,
    count: int,
    columns: Sequence[str] = (),
    as_json: bool = False,
) -> None:
    """Compare two runs or datasets, write the page of the comparison, and print the differences.

    Args:
        path_a: The first run or dataset.
        path_b: The second one.
        options: The benchmarks, decoders and problems of the comparison.
        html: File of the page; None for no page.
        count: Number of changed problems to print.
        columns: Names of the columns, some with commas; none for all that fit the terminal.
        as_json: Whether to print the comparison as JSON instead of a table.

    Raises:
        InputError: if they cannot be compared, or a column is unknown.
    """
    # Two datasets with equal solutions are compared, too, so each is a pool of its own.
    [pool_a] = load_pools([path_a])
    [pool_b] = load_pools([path_b])
    comparison = compare_pools(pool_a, pool_b, options)
    if html is not None:
        write_text(html, render_comparison(pool_a, pool_b, comparison, options))
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
    for name, task in results.tasks.items():
        for count, reason in ((task.failed, "failed"), (task.left_out, "fewer samples")):
            if count:
                print_text(f"{name}: {count:,} problems are left out ({reason})")
        for text in describe_unscored(task.unscored, task.problems * task.samples):
            print_text(f"{name}: {text}")
        if task.decoders and not _counted_problems(task):
            print_text(
                f"{name}: no problem counts (no readable gold answer, or no graded solution)"
            )
    for table in choice_tables(results):
        print_text(f"\n{table.title}")
        print_table(table.columns, table.rows)
    for task in results.tasks.values():
        _print_groups(task)


def _counted_problems(task: TaskResults) -> int:
    """Return the number of problems over which the accuracies of a benchmark are."""
    return max((accuracy.n for accuracy in task.accuracies.values()), default=0)


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
    parts: Mapping[str, Mapping[str, Mean]],
) -> Iterator[Sequence[str]]:
    """Yield one row per label of a group and decoder."""
    for label, by_decoder in parts.items():
        for decoder, mean in by_decoder.items():
            yield label, decoder, format_points(mean), f"{mean.n:,}"


def _spread_numbers(spread: AccuracySpread) -> tuple[float, float, float, float]:
    return spread.mean, spread.deviation, spread.lowest, spread.highest


def _result_rows(results: Results) -> Iterator[Sequence[str]]:
    for task in results.tasks.values():
        for name in listed_decoders(task):
            result = task.decoders[name]
            yield (
                task.title,
                name,
                format_points(result.accuracy),
                f"{result.accuracy.total:g}",
                f"{result.accuracy.n:,}",
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
                    cells = (format_points(accuracy), f"{accuracy.total:g}", "", "", "")
                    yield task.title, f"{name}, {condition}", *cells
        for row in number_rows(task, "terminal"):
            yield task.title, row.title, row.text, "", f"{row.mean.n:,}", "", ""
    for suite, suite_results in results.suites.items():
        for name, mean in suite_results.accuracies.items():
            yield f"mean of {suite}", name, format_points(mean), "", f"{mean.n:,}", "", ""


def print_comparison(comparison: Comparison, count: int, columns: Sequence[str] = ()) -> None:
    """Print the differences, then the first ``count`` changed problems.

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
    if any(paired.difference.clusters for paired in comparison.differences):
        print_text("(n): number of base problems; intervals and p-values are over base problems.")
    for changed in comparison.changed[:count]:
        is_a_better = changed.better == "a"
        correct_answer = changed.answer_a if is_a_better else changed.answer_b
        wrong_answer = changed.answer_b if is_a_better else changed.answer_a
        question = " ".join(changed.question.split())[:_MAX_QUESTION_CHARS]
        print_text(
            f"{changed.task} {changed.problem_id}  only {changed.better.upper()}: "
            f"gold {changed.gold!r}, correct {correct_answer!r}, "
            f"wrong {wrong_answer!r}  {question}"
        )
    n_changed = len(comparison.changed)
    if n_changed > count:
        print_text(f"{n_changed - count} more; --show {n_changed} shows all")
