"""Report on datasets, or on the comparison of two, in the terminal."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fsdpo_cards.render import format_amount

from fsdpo_bench.metrics.compare import (
    Comparison,
    ComparisonOptions,
    PairedDifference,
    compare_pools,
    pair_benchmarks,
    paired_differences,
)
from fsdpo_bench.metrics.decoded import LIKELIHOOD_DECODER, parse_decoder_name
from fsdpo_bench.metrics.disagreements import VerdictComparison
from fsdpo_bench.metrics.likelihood import sample_likelihoods
from fsdpo_bench.metrics.measure import Decoded, MeasureSpec, decode_pool, measure
from fsdpo_bench.metrics.numbers import format_points, number_rows
from fsdpo_bench.metrics.pools import Pool, load_pools, question_key
from fsdpo_bench.metrics.results import (
    AccuracyDrop,
    AccuracyResult,
    AccuracySpread,
    Results,
    TaskResults,
)
from fsdpo_bench.report.choice_tables import choice_tables, listed_decoders
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
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import write_text
from fsdpo_data.core.progress import NO_PROGRESS, Progress
from fsdpo_data.problems.load import load_problems

_MAX_QUESTION_CHARS = 90  #: Characters of a question in the lists of problems.


@dataclass(frozen=True, slots=True)
class Report:
    """The datasets of a report and their results."""

    pool: Pool  #: The datasets.
    results: Results  #: Their results.
    decoded: Decoded  #: The choices of decoders.
    folder: Path | None  #: Folder with the written files; None if nothing was written.


def make_reports(
    paths: Sequence[Path],
    spec: MeasureSpec,
    *,
    problems: Path | None = None,
    policies: Sequence[str] = (),
    out: Path | None = None,
    budget_bytes: int,
    warn: Callable[[str], None],
    progress: Progress = NO_PROGRESS,
) -> list[Report]:
    """Measure runs and datasets, and write the reports.

    The report of a single run is in its folder.

    Args:
        paths: Folders of runs and of sealed datasets. Datasets with equal solutions are one pool.
        spec: What is measured.
        problems: File of problems; only these problems count, by their questions.
        policies: The model of each pool, for the choice by likelihood; empty to leave it out.
        out: Folder of the files; None for the folder of a single run.
        budget_bytes: Bytes of text in the problem list of ``report.html``.
        warn: Called with a message if a plot fails.
        progress: Receives the progress of the measurement.

    Raises:
        InputError: if the datasets cannot be measured.
        SchemaError: if a dataset is not sealed, or its files were changed.
    """
    if not paths:
        raise InputError("nothing to measure: give at least one run or dataset.", field="data")
    progress.phase("read", 1)
    pools = load_pools(paths, _questions(problems))
    if policies and len(policies) != len(pools):
        raise InputError(
            f"{len(policies)} models for {len(pools)} sets of samples. Give the model of each.",
            field="likelihood",
        )
    if out is not None and len(pools) > 1:
        raise InputError(
            f"a folder has one report, but these are {len(pools)} sets of samples. Report on each.",
            field="out",
            value=out,
        )
    progress.phase("measure", len(pools))
    reports = []
    for index, pool in enumerate(pools):
        likelihoods = sample_likelihoods(pool, policies[index]) if policies else None
        decoded = decode_pool(pool, spec, likelihoods)
        results = measure(pool, spec, decoded)
        is_only_run = len(paths) == 1 and pool.run is not None and problems is None
        folder = out or (paths[0] if is_only_run else None)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            write_report(folder, pool, results, decoded, budget_bytes=budget_bytes, warn=warn)
        reports.append(Report(pool, results, decoded, folder))
        progress.advance(1)
    return reports


def _questions(file: Path | None) -> frozenset[str] | None:
    """Return the questions of a file of problems, without white space; None without a file."""
    if file is None:
        return None
    problems = load_problems([str(file)]).problems
    return frozenset(question_key(problem.question) for problem in problems)


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
    differences = _differences(reports)
    for name in common_tasks:
        tasks = [report.results.tasks[name] for report in reports]
        print_text(f"\n{tasks[0].title}: accuracy (%), with 95 % intervals")
        columns = ["", "choice", *(f"{report.pool.name}>" for report in reports)]
        if name in differences:
            columns.append("difference>")
        print_table(columns, _column_rows(tasks, differences.get(name)))
        counts = ", ".join(
            f"{report.pool.name} {task.problems:,}"
            for report, task in zip(reports, tasks, strict=True)
        )
        print_text(f"problems: {counts}")


def _differences(reports: Sequence[Report]) -> dict[str, dict[str, PairedDifference]]:
    """Return the paired differences of two pools with equal problems, by benchmark and measure."""
    if len(reports) != 2:
        return {}
    first, second = reports
    pairs = pair_benchmarks(first.pool, second.pool, ComparisonOptions(common=True))
    return {
        pair.name: paired_differences(pair, first.decoded[pair.name], second.decoded[pair.name])
        for pair, note in pairs
        if not note
    }


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
            cells = (format_points(task.decoders[decoder]) for task in tasks)
            yield row(decoder, describe_choice(decoder), cells)
    for title in (title for title in titles if title.startswith("pass@")):
        yield row(title, "a perfect choice, the upper bound", (texts[title] for texts in numbers))


def format_gain(difference: PairedDifference) -> str:
    """Format a difference with its interval in points, with signs."""
    low, high = (100 * bound for bound in difference.ci95)
    return f"{100 * difference.difference:+.1f} [{low:+.1f}, {high:+.1f}]"


def describe_choice(name: str) -> str:
    """Return the title of a decoder with its number of samples."""
    setup = parse_decoder_name(name)
    if setup is None:
        is_likelihood = name.partition("@")[0] == LIKELIHOOD_DECODER
        return "the most likely sample, without a PRM" if is_likelihood else ""
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
        recorded = "correct" if entry.recorded_correct else "incorrect"
        question = " ".join(entry.question.split())[:_MAX_QUESTION_CHARS]
        print_text(
            f"{entry.solution_id}: gold {entry.gold!r}, answer {entry.answer!r}: {entry.outcome}, "
            f"recorded as {recorded}  {question}"
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
    [pool_a], [pool_b] = load_pools([path_a]), load_pools([path_b])
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
    for table in choice_tables(results):
        print_text(f"\n{table.title}")
        print_table(table.columns, table.rows)
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
        for name in listed_decoders(task):
            result = task.decoders[name]
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
    if any(difference.clusters for difference in comparison.differences):
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
