"""Tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from fsdpo_cards.render import percent

from fsdpo_bench.cli.tables import add_row, make_table, plain, print_table
from fsdpo_bench.recorded.score import Scored, Series
from fsdpo_bench.tasks.table import Task, shelf
from fsdpo_bench.tasks.validate import Report
from fsdpo_data.answers import Verdict
from fsdpo_data.answers.finding.extract import is_marked
from fsdpo_data.core.statistics import wilson_interval


def print_tasks() -> None:
    """Print the benchmarks and the suites."""
    table = make_table("task", "benchmark", "problems>", "Hub dataset", "suites", "licence")
    for task in shelf().values():
        count, groups = "–" if task.count is None else f"{task.count:,}", ", ".join(task.suites)
        add_row(table, task.name, task.title, count, _origin(task), groups, task.licence)
    print_table(table)


def _origin(task: Task) -> str:
    if task.make is not None:
        return "– (made here)"
    return task.hub.repo if task.hub else "– (give --data)"


def print_reports(reports: Sequence[Report]) -> None:
    """Print what was found out about benchmarks: a table, then every exception."""
    columns = ("benchmark", "problems>", "golds>", "equal themselves>", "digest", "result")
    table = make_table(*columns, "golds read as")
    for report in reports:
        digest = report.digest if report.known_digest else f"{report.digest} (not the known one)"
        add_row(
            table,
            report.task.title,
            f"{report.problems:,}",
            f"{report.golds:,}",
            f"{report.right:,}",
            "–" if report.error else digest,
            "ok" if report.passed else plain("not ok", "red"),
            ", ".join(f"{kind} {count:,}" for kind, count in report.kinds.items()),
        )
    print_table(table)
    for report in reports:
        _print_findings(report)


def _print_findings(report: Report) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    if report.error:
        console.print(f"\n{report.task.title}: {escape(report.error)}")
    if report.findings:
        console.print(f"\n{report.task.title}")
    for finding in report.findings:
        mark = "[red]surprise[/red]" if finding.surprise else "known"
        gold = escape(repr(finding.gold))
        console.print(f"  row {finding.row:>4}  {mark}  {gold}: {escape(finding.what)}")


def print_series(series: Sequence[Series]) -> None:
    """Print scores with their 95 % intervals."""
    counts = ("correct>", "of>", "accuracy", "marked>", "exact>", "published>", "differ>")
    table = make_table("series", *counts, "outcomes")
    for each in series:
        correct = each.outcomes["correct"]
        share = correct / each.graded if each.graded else None
        others = {name: n for name, n in sorted(each.outcomes.items()) if name != "correct"}
        add_row(
            table,
            each.name or "all",
            f"{correct:,}",
            f"{each.graded:,}",
            percent(share, wilson_interval(correct, each.graded)),
            f"{each.marked:,}",
            f"{each.exact:,}",
            "–" if each.theirs is None else f"{each.theirs:,}",
            "–" if each.theirs is None else f"{each.disputed:,}",
            ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in others.items()),
        )
    print_table(table)


def print_disputed(scored: Sequence[Scored], count: int) -> None:
    """Print the first responses whose publisher's verdict is another."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    for each in scored[:count]:
        recorded = each.recorded
        name = f" {recorded.series}" if recorded.series else ""
        ours = f"{each.verdict.status} ({each.verdict.rule})"
        console.print(
            f"row {recorded.row}{name}: gold {escape(repr(recorded.gold))}, answer "
            f"{escape(repr(each.verdict.answer))}: {ours}, published as "
            f"{'correct' if recorded.correct else 'incorrect'}"
        )
    if len(scored) > count:
        console.print(f"{len(scored) - count} more; --show {len(scored)} shows all")


def print_verdict(gold: str, verdict: Verdict) -> None:
    """Print one verdict with what it rests on."""
    extraction, _, comparison = verdict.rule.partition("/")
    rows = {
        "status": verdict.status,
        "gold": gold,
        "answer": "none" if verdict.answer is None else verdict.answer,
        "extracted by": extraction + ("" if is_marked(extraction) else " (not marked)"),
        "compared by": comparison or "–",
        "gold is read as": verdict.gold_form or "–",
        "answer is read as": verdict.answer_form or "–",
    }
    table = make_table("", "", header=False)
    for name, value in rows.items():
        add_row(table, plain(name, "bold"), value)
    print_table(table)
