"""Results and comparisons as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsdpo_bench.cli.tables import add_row, make_table, plain, print_table
from fsdpo_bench.report.plots import points
from fsdpo_bench.results.compare import Comparison, Delta


def print_results(results: Mapping[str, Any]) -> None:
    """Print accuracy and cost by benchmark and decoder, then the means of suites."""
    shown = make_table(
        "benchmark", "decoder", "accuracy>", "correct>", "of>", "tokens>", "PRM calls>"
    )
    for task in results["tasks"].values():
        title = task["title"]
        for name, share in task["decoders"].items():
            cost = share["cost"]
            counts = (f"{share['correct']:g}", f"{share['n']:,}")
            spent = (f"{cost['tokens']:,.0f}", f"{cost['prm_calls']:,.0f}")
            add_row(shown, title, name, points(share), *counts, *spent)
            title = ""
        for k, share in task["avg_at_k"].items():
            add_row(shown, title, f"avg@{k}", points(share), "", f"{share['n']:,}", "", "")
    for suite, found in results["suites"].items():
        title = f"mean of {suite}"
        for name, share in found["decoders"].items():
            add_row(shown, title, name, points(share), "", f"{share['n']:,}", "", "")
            title = ""
    print_table(shown)


def print_comparison(compared: Comparison, show: int) -> None:
    """Print the differences, then the first problems that changed."""
    from rich.console import Console

    columns = ("benchmark", "decoder", "A>", "B>", "B - A>", "95 %>", "only A>", "only B>", "p>")
    shown = make_table(*columns, "of>")
    title = ""
    for delta in compared.deltas:
        add_row(shown, delta.task if delta.task != title else "", *_row(delta))
        title = delta.task
    print_table(shown)
    console = Console(highlight=False, soft_wrap=True)
    for note in compared.notes:
        console.print(plain(f"note: {note}"))
    if any(delta.clusters for delta in compared.deltas):
        console.print("(n): base problems that problems share; interval and p are over those.")
    for change in compared.changed[:show]:
        right, wrong = change.answer_a, change.answer_b
        if change.better == "b":
            right, wrong = wrong, right
        question = " ".join(change.question.split())[:90]
        told = (
            f"{change.task} {change.problem_id}  only {change.better.upper()}: gold "
            f"{change.gold!r}, right {right!r}, wrong {wrong!r}  {question}"
        )
        console.print(plain(told))
    if len(compared.changed) > show:
        console.print(f"{len(compared.changed) - show} more; --show {len(compared.changed)}")


def _row(delta: Delta) -> list[str]:
    same = delta.decoder_a == delta.decoder_b
    low, high = (100 * bound for bound in delta.ci95)
    clusters = f" ({delta.clusters})" if delta.clusters else ""
    return [
        delta.decoder_a if same else f"{delta.decoder_a} / {delta.decoder_b}",
        f"{100 * delta.correct_a / delta.n:.1f}",
        f"{100 * delta.correct_b / delta.n:.1f}",
        f"{100 * delta.difference:+.1f}",
        f"[{low:+.1f}, {high:+.1f}]",
        f"{delta.only_a:,}",
        f"{delta.only_b:,}",
        f"{delta.p:.4f}" if delta.p >= 1e-4 else f"{delta.p:.1e}",
        f"{delta.n:,}{clusters}",
    ]
