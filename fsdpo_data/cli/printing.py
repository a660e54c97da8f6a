"""Datasets for people: a manifest as a table, problems with their step-marked solutions."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from fsdpo_cards.render import format_token_count

from fsdpo_data.core.entities import OUTCOMES
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.manifest_sections import RegradeStats
from fsdpo_data.dataset.summary import dataset_warnings, summary_rows
from fsdpo_data.pairs.statistics import SIDES
from fsdpo_data.steps.rewards import step_weights

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS = {"correct": "green", "incorrect": "red"}
_SIGNS = {True: "[green]+[/]", False: "[red]-[/]", None: "[yellow]?[/]"}


def print_summary(manifest: Manifest, title: str) -> None:
    """Print what a manifest says, as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in summary_rows(manifest):
        table.add_row(name, escape_for_terminal(value))
    Console().print(table)
    for warning in dataset_warnings(manifest):
        Console().print(f"[yellow]warning:[/] {warning}", highlight=False)


def print_changes(regraded: RegradeStats) -> None:
    """Print how many solutions went from which outcome to which."""
    from rich.console import Console
    from rich.table import Table

    counts = {(was, now): count for was, now, count in regraded.outcomes}
    outcomes = [each for each in OUTCOMES if any(each in pair for pair in counts)]
    title = f"\n{regraded.changed:,} outcomes changed from {regraded.old_grader}"
    title += f" (rows) to {regraded.new_grader} (columns)"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for now in outcomes:
        table.add_column(now.replace("_", " "), justify="right")
    for was in outcomes:
        cells = [f"{counts.get((was, now), 0):,}" for now in outcomes]
        table.add_row(was.replace("_", " "), *cells)
    Console().print(table)


def escape_for_terminal(text: str) -> str:
    """Return a text of others that a terminal shows as it is, and takes no orders from."""
    from rich.markup import escape

    return escape(strip_control_characters(text))


def strip_control_characters(text: str) -> str:
    """Return a text without characters that steer terminals or text, and without surrogates."""
    shown = (c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs") for c in text)
    return "".join(c if seen else "\ufffd" for c, seen in zip(text, shown, strict=True))


def print_problem(problem: Mapping[str, Any], samples: int, gamma: float) -> None:
    """Print a problem and up to ``samples`` of its solutions and of its pairs, a step at a time."""
    from rich.console import Console

    console = Console(emoji=False)  # 3:100:5 is no emoji
    console.rule(
        f"[bold]{problem['problem_id']}[/]  {escape_for_terminal(problem['source'])}", align="left"
    )
    console.print(
        escape_for_terminal(textwrap.fill(problem["question"], console.width)), highlight=False
    )
    console.print(f"[bold]gold[/] {escape_for_terminal(problem['answer'])}", highlight=False)
    for solution in problem["solutions"][:samples]:
        _print_solution(console, solution, gamma)
    if (hidden := len(problem["solutions"]) - samples) > 0:
        console.print(f"\n[dim]{hidden} more; --samples {len(problem['solutions'])} shows all[/]")
    for pair in problem["pairs"][:samples]:
        _print_pair(console, pair, gamma)
    console.print()


def _print_pair(console: Console, pair: Mapping[str, Any], gamma: float) -> None:
    """Print a pair side by side, with reward and α of every step."""
    from rich.table import Table

    table = Table(title=f"\npair, α at γ = {gamma:g}", title_justify="left", box=None, expand=True)
    columns = []
    for side in SIDES:
        table.add_column(f"{side} {pair[f'{side}_id']}", ratio=1, overflow="fold")
        told = _format_rewards(pair[f"{side}_rewards"], gamma, side == "chosen")
        steps = map(escape_for_terminal, map(str.rstrip, pair[f"{side}_steps"]))
        columns.append([" ".join(each) for each in zip_longest(told, steps, fillvalue="")])
    for row in zip_longest(*columns, fillvalue=""):
        table.add_row(*row)
    console.print(table)


def _format_rewards(rewards: Sequence[float] | None, gamma: float, preferred: bool) -> list[str]:
    """Write reward and α of every step, as of a preferred or of a dispreferred solution."""
    weights = step_weights(rewards or (), gamma, 1 if preferred else -1)
    return [f"[dim]{r:.2f} α {w:.2f}[/] " for r, w in zip(rewards or (), weights, strict=True)]


def _print_solution(console: Console, solution: Mapping[str, Any], gamma: float) -> None:
    colour = _COLOURS.get(solution["outcome"], "yellow")
    answer = escape_for_terminal(solution["answer"]) if solution["answer"] is not None else "none"
    cut = ", truncated" if solution["finish_reason"] == "length" else ""
    console.print(
        f"\n[bold {colour}]#{solution['sample_index']} {solution['outcome']}[/]  "
        f"answer {answer}  [dim]{format_token_count(solution['n_tokens'])}{cut}  {solution['solution_id']}[/]",
        highlight=False,
    )
    steps = solution["completions"]
    labels = solution["labels"] or [None] * len(steps)
    told = _format_rewards(solution["step_rewards"], gamma, solution["outcome"] == "correct")
    each_step = enumerate(zip(steps, labels, told or [""] * len(steps), strict=True), start=1)
    for number, (step, label, score) in each_step:
        body = escape_for_terminal(step.rstrip()).replace("\n", "\n" + " " * 8)
        console.print(f" {_SIGNS[label]} [dim]{number:>3}[/] {score} {body}", highlight=False)
