"""What commands print for people, where they print no JSON."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fsdpo_cards.render import format_amount, format_percent, format_token_count
from rich.console import Console
from rich.measure import Measurement
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from fsdpo_bench.cli.options import RunInspectOptions
from fsdpo_bench.prm.measure import PrmMeasurements
from fsdpo_bench.prm.prmbench import ALTERATIONS, PrmBenchScores, StepErrorScores
from fsdpo_bench.recipes.recipe import Gpu, Recipe, RecipeStage, estimate, measured_cost
from fsdpo_bench.recorded.outputs import GradedResponse
from fsdpo_bench.report.plots import format_points
from fsdpo_bench.results.compare import PairedDifference, RunComparison
from fsdpo_bench.results.result_types import Results
from fsdpo_bench.runs.records import own_decoders, read_records, select_decoder
from fsdpo_bench.tasks.table import Task
from fsdpo_bench.tasks.validate import TaskReport
from fsdpo_data.answers import Verdict
from fsdpo_data.answers.extraction.extract import is_marked_rule
from fsdpo_data.cli.printing import strip_control_characters

_MIN_COLUMN_WIDTH = 7  #: Characters that a column of words keeps on the narrowest terminal.


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Print rows as wide as the terminal is; whole where there is none, or where it is too narrow.

    On a narrow terminal words fold, numbers and the names of the rows do not, and no column goes. A
    column whose name ends in ">" is of numbers; without any name there is no head. Cells that are
    strings are plain text. Of rows of one name, which come together, the first alone shows it.
    """
    table = Table(box=None, pad_edge=False, show_header=any(columns))
    for place, column in enumerate(columns):
        number = column.endswith(">")
        table.add_column(
            column.rstrip(">"),
            justify="right" if number else "left",
            overflow="fold",
            no_wrap=number or not place,
            min_width=None if number or not place else _MIN_COLUMN_WIDTH,
        )
    last: str | Text = ""
    for name, *others in rows:
        shown = ("" if name == last else name, *others)
        table.add_row(*(plain_text(cell) if isinstance(cell, str) else cell for cell in shown))
        last = name
    console = Console()
    words = [column for column in table.columns if not column.no_wrap]
    for each in words if console.is_terminal else ():
        each.max_width = _MIN_COLUMN_WIDTH  # while it is measured how narrow the table can be
    free = console.options.update(max_width=10_000)
    console.width = max(console.width, Measurement.get(console, free, table).maximum)
    for each in words:
        each.max_width = None
    console.print(table, soft_wrap=False, crop=False)


def print_text(text: str, style: str = "", *, wrap: bool = False) -> None:
    """Print plain text; lines are folded between words only if ``wrap``."""
    Console(highlight=False, soft_wrap=not wrap).print(plain_text(text, style))


def plain_text(text: str, style: str = "") -> Text:
    """Return text of a model or a benchmark as it is shown: no markup, no terminal escapes."""
    return Text(strip_control_characters(text), style=style)


def print_tasks(tasks: Sequence[Task]) -> None:
    """Print the benchmarks and their suites."""
    rows = []
    for task in tasks:
        count = "–" if task.count is None else f"{task.count:,}"
        home = f"{task.fetch.repo} (GitHub)" if task.fetch else "– (made here)"
        hub, suites = task.hub.repo if task.hub else home, ", ".join(task.suites)
        rows.append((task.name, task.title, count, hub, suites, task.licence))
    print_table(("task", "benchmark", "problems>", "where it is", "suites", "licence"), rows)


def print_reports(reports: Sequence[TaskReport]) -> None:
    """Print what was found out about benchmarks: a table, then every exception."""
    columns = ("benchmark", "problems>", "golds>", "equal themselves>", "digest", "result")
    print_table((*columns, "golds read as"), map(_report_row, reports))
    for report in reports:
        if report.error:
            print_text(f"\n{report.task.title}: {report.error}")
        if report.findings or report.task.defects:
            print_text(f"\n{report.task.title}")
        for defect in report.task.defects:
            print_text(f"  known: {defect}")
        for finding in report.findings:
            mark, style = ("surprise", "red") if finding.is_unexpected else ("known", "")
            print_text(
                f"  row {finding.row:>4}  {mark}  {finding.gold!r}: {finding.description}", style
            )


def _report_row(report: TaskReport) -> Sequence[Any]:
    digest = report.digest if report.has_known_digest else f"{report.digest} (not the known one)"
    counts = (f"{count:,}" for count in (report.problems, report.golds, report.right))
    result = "ok" if report.has_passed else plain_text("not ok", "red")
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in report.kinds.items())
    return (report.task.title, *counts, "–" if report.error else digest, result, kinds)


def print_series(series: Sequence[Mapping[str, Any]]) -> None:
    """Print scores with their 95 % intervals."""
    counts = ("correct>", "of>", "accuracy", "marked>", "exact>", "published>", "differ>")
    print_table(("series", *counts, "outcomes"), map(_series_row, series))


def _series_row(each: Mapping[str, Any]) -> Sequence[str]:
    counts = {name: f"{n:,}" for name, n in each.items() if isinstance(n, int)}
    share = format_percent(each["correct"] / each["n"] if each["n"] else None, each["ci95"])
    published = ("–", "–")
    if each["published_correct"] is not None:
        published = (counts["published_correct"], counts["disputed"])
    others = [(n, name) for name, n in each["outcomes"].items() if name != "correct"]
    told = ", ".join(f"{n:,} {name.replace('_', ' ')}" for n, name in others)
    ours = (share, counts["marked_correct"], counts["exact_correct"], *published, told)
    return (each["series"] or "all", counts["correct"], counts["n"], *ours)


def print_disputed(scored: Sequence[GradedResponse], count: int) -> None:
    """Print the first responses whose publisher's verdict is another."""
    for each in scored[:count]:
        recorded = each.recorded_response
        name = f" {recorded.series}" if recorded.series else ""
        print_text(
            f"row {recorded.row}{name}: gold {recorded.gold!r}, answer {each.verdict.answer!r}: "
            f"{each.verdict.status} ({each.verdict.rule}), published as "
            f"{'correct' if recorded.correct else 'incorrect'}"
        )
    if len(scored) > count:
        print_text(f"{len(scored) - count} more; --show {len(scored)} shows all")


def print_verdict(gold: str, verdict: Verdict) -> None:
    """Print one verdict with what it rests on."""
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
    print_table(("", ""), ((plain_text(name, "bold"), value) for name, value in rows.items()))


def print_results(results: Results) -> None:
    """Print accuracy and cost by benchmark and decoder, then the means of suites."""
    columns = ("benchmark", "decoder", "accuracy>", "correct>", "of>", "tokens>", "PRM calls>")
    print_table(columns, _result_rows(results))


def _result_rows(results: Results) -> Iterator[Sequence[str]]:
    for task in results["tasks"].values():
        for name, decoder in task["decoders"].items():
            cost = decoder["cost"]
            counts = (f"{decoder['correct']:g}", f"{decoder['n']:,}")
            spent = (format_amount(cost["tokens"]), f"{cost['prm_calls']:,.0f}")
            yield (task["title"], name, format_points(decoder), *counts, *spent)
        for k, share in task["avg_at_k"].items():
            yield (task["title"], f"avg@{k}", format_points(share), "", f"{share['n']:,}", "", "")
    for suite, found in results["suites"].items():
        for name, share in found["decoders"].items():
            yield (f"mean of {suite}", name, format_points(share), "", f"{share['n']:,}", "", "")


def print_comparison(compared: RunComparison, show: int) -> None:
    """Print the differences, then the first problems that changed."""
    columns = ("benchmark", "decoder", "A>", "B>", "B - A>", "95 %>", "only A>", "only B>", "p>")
    print_table((*columns, "of>"), map(_delta_row, compared.deltas))
    for note in compared.notes:
        print_text(f"note: {note}")
    if any(delta.clusters for delta in compared.deltas):
        print_text("(n): base problems that problems share; interval and p are over those.")
    for change in compared.changed[:show]:
        right, wrong = change.answer_a, change.answer_b
        if change.better == "b":
            right, wrong = wrong, right
        print_text(
            f"{change.task} {change.problem_id}  only {change.better.upper()}: gold "
            f"{change.gold!r}, right {right!r}, wrong {wrong!r}  "
            f"{' '.join(change.question.split())[:90]}"
        )
    if len(compared.changed) > show:
        print_text(f"{len(compared.changed) - show} more; --show {len(compared.changed)}")


def _delta_row(delta: PairedDifference) -> Sequence[str]:
    same = delta.decoder_a == delta.decoder_b
    low, high = (100 * bound for bound in delta.ci95)
    clusters = f" ({delta.clusters})" if delta.clusters else ""
    return (
        delta.task,
        delta.decoder_a if same else f"{delta.decoder_a} / {delta.decoder_b}",
        f"{100 * (delta.correct_a / delta.n):.1f}",
        f"{100 * (delta.correct_b / delta.n):.1f}",
        f"{100 * delta.difference:+.1f}",
        f"[{low:+.1f}, {high:+.1f}]",
        f"{delta.only_a:,}",
        f"{delta.only_b:,}",
        f"{delta.p:.4f}" if delta.p >= 1e-4 else f"{delta.p:.1e}",
        f"{delta.n:,}{clusters}",
    )


def print_prm(measured: PrmMeasurements) -> None:
    """Print what was measured of a process reward model."""
    if measured.dataset is not None:
        for name, value in _dataset_rows(measured.dataset):
            print_text(f"{name:<36}{value}")
        curves = measured.dataset["best_of"]
        names = {"pass": "a perfect judge"}
        rows = (
            (names.get(how, how), *(f"{100 * value:.1f}" for value in curve.values()))
            for how, curve in curves.items()
        )
        print_table(("best-of-N by", *(f"N={size}>" for size in curves["pass"])), rows)
    for file, found in measured.processbench.items():
        print_text(f"\n{file}")
        for name, value in found.rows():
            print_text(f"{name:<36}{value}")
    if measured.prmbench is not None:
        _print_step_errors(measured.prmbench)


def _print_step_errors(found: PrmBenchScores) -> None:
    print_text(f"\nPRMBench, rewards above {found.threshold:g} call a step right")
    columns = ("PRMScore>", "F1>", "negative F1>", "right passed>", "wrong caught>")
    names = {name: way.title for name, way in ALTERATIONS.items()}
    print_table(
        ("", *columns, "first caught>", "apart from original>", "solutions>", "too long>"),
        [
            (names.get(name, name), *_step_errors_row(each))
            for name, each in found.ways.items()
            if each.solutions + each.unscored
        ],
    )
    for name, score in found.dimensions.items():
        print_text(f"{name:<36}{100 * score:.1f}")


def _step_errors_row(found: StepErrorScores) -> Iterator[str]:
    for value in (found.score, found.f1, found.negative_f1):
        yield "–" if value is None else f"{100 * value:.1f}"
    for part, whole in (found.passed, found.caught, found.first_caught):
        yield f"{100 * part / whole:.1f} of {whole:,}" if whole else "–"
    yield "–" if found.mean_gap_to_original is None else f"{100 * found.mean_gap_to_original:.1f}"
    yield from (f"{found.solutions:,}", f"{found.unscored:,}")


def _dataset_rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "solutions", f"{report['solutions']:,} of {report['problems']:,} problems"
    for how, ranking in report["ranking_auc"].items():
        text = _interval(ranking["value"], ranking["ci95"])
        yield f"ranking AUC, {how}", f"{text}  ({ranking['problems']:,} problems)"
    if steps := report["steps"]:
        yield "right over wrong steps, AUC", _interval(steps["auc"], None)
        of = f"  ({steps['solutions']:,} solutions of {steps['problems']:,} problems)"
        yield "reward before less after the error", _interval(steps["margin"], steps["ci95"]) + of


def _interval(value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" + (f"  [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")


def print_recipes(recipes: Sequence[Recipe]) -> None:
    """Print what recipes there are."""
    rows = ((r.name, str(len(r.stages)), f"{r.gpu_hours:,.0f}", r.title) for r in recipes)
    print_table(("recipe", "stages>", "GPU-hours>", "what it makes"), rows)


def print_costs(stages: Sequence[RecipeStage], gpu: Gpu, price: float | None) -> None:
    """Print what stages are estimated to cost, beside what they have cost."""
    rows, total = [], 0.0
    for stage in stages:
        expected, hours = estimate(stage.work, gpu)
        total += hours
        each = (hours, hours / stage.gpus if stage.gpus else 0.0, price and hours * price)
        real = measured_cost(stage) or (None, None)
        costs = (_tokens(expected), *map(_hours, each), _tokens(real[0]), _hours(real[1]))
        rows.append((stage.name, str(stage.gpus), *costs))
    columns = ("stage", "GPUs>", "tokens>", "GPU-hours>", "hours>", "price>")
    last = ("all", "", "", _hours(total), "", _hours(price and total * price), "", "")
    print_table((*columns, "tokens spent>", "GPU-hours spent>"), [*rows, last])


def print_plan(
    recipe: Recipe, stages: Sequence[RecipeStage], gpu: Gpu, price: float | None
) -> None:
    """Print what the stages do, cost and have cost, then their commands."""
    print_text(f"{recipe.title}\n{recipe.about}\n")
    print_costs(stages, gpu, price)
    print_text(f"\n{gpu.assumptions}\n")
    for stage in stages:
        print_text(f"# {stage.name}: {stage.purpose}\n{stage.command}\n")
    if recipe.expected:
        print_text(f"The paper's row: {recipe.expected}")


def _tokens(count: float | None) -> str:
    if count is None:
        return "–"
    return f"{count / 1e6:,.0f} M" if count >= 1e6 else f"{count:,.0f}"


def _hours(count: float | None) -> str:
    return "–" if count is None else f"{count:,.2f}"


_INDENT = "    "  #: Before each line of a solution.
_say = partial(print_text, wrap=True)
_STYLES = {True: "green", False: "red", None: "dim"}


def matching_records(wanted: RunInspectOptions) -> Iterator[dict[str, Any]]:
    """Yield the records of a run that a filter lets pass.

    Raises:
        InputError: if there is no run, or it has no such benchmark or decoder.
    """
    decoder = select_decoder(wanted.data, wanted.decoder)
    by = ("outcome", "subject", "level")
    asked = {name: value for name in by if (value := getattr(wanted, name)) is not None}
    for record in read_records(wanted.data, wanted.task):
        decided = record["decoded"].get(decoder)
        if decided is not None and record["problem_id"].startswith(wanted.problem or ""):
            found = {**record["metadata"], "outcome": decided["status"]}
            if asked.items() <= found.items():
                yield record


def print_records(records: Iterator[dict[str, Any]], count: int, samples: int) -> None:
    """Print the first problems step by step, and say how many there are."""
    shown = 0
    for shown, record in enumerate(records, start=1):
        if shown <= count:
            _print_record(record, samples)
    more = f"; --count {shown} shows all" if shown > count else ""
    _say(f"matching problems: {shown:,}{more}")


def _print_record(record: Mapping[str, Any], samples: int) -> None:
    facets = ", ".join(f"{key} {value}" for key, value in record["metadata"].items())
    head = f"{record['task']} row {record['row']}  {record['problem_id']}"
    Console().print(Rule(plain_text(f"{head}  {facets}"), align="left"))
    own = own_decoders(record)
    _say(record["question"])
    _say(f"gold: {record['gold']}\n", "bold")
    for name, found in record["decoded"].items():
        which = "" if name in own else f"  (sample {found['sample']})"
        said = f"{name}: {found['answer']}  {found['status']} ({found['rule']}){which}"
        _say(said, _STYLES[found["correct"]])
    for name in own:
        _print_solution(name, record["decoded"][name]["solution"])
    for index, row in enumerate(record["samples"][:samples]):
        _print_solution(f"sample {index}", row)
    _say("")


def _print_solution(name: str, row: Mapping[str, Any]) -> None:
    ended = f"{format_token_count(row['n_tokens'])}, ended by {row['finish_reason']}"
    _say(f"\n{name}: {row['answer']}  {row['status']} ({row['rule']}), {ended}")
    rewards = row["rewards"] or [None] * len(row["steps"])
    for step, reward in zip(row["steps"], rewards, strict=True):
        mark = "     " if reward is None else f"{reward:.3f}"
        lines = step.rstrip().replace("\n", f"\n{_INDENT}      ")
        _say(f"{_INDENT}{mark} {lines}")
