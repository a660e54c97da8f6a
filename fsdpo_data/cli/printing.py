"""Printing of datasets in a terminal: summaries, problems, solutions and pairs."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from fsdpo_cards.render import format_token_count

from fsdpo_data.cli.options import with_flags
from fsdpo_data.core.terminal import strip_control_characters
from fsdpo_data.dataset.schema import SCHEMA_VERSION, ColumnSummary, other_values
from fsdpo_data.dataset.statistics import DatasetStatistics
from fsdpo_data.dataset.step_labels import LabelKind, right_steps
from fsdpo_data.dataset.summary import dataset_warnings, summary_rows
from fsdpo_data.pairs.statistics import SIDES
from fsdpo_data.steps.rewards import step_weights

if TYPE_CHECKING:
    from rich.console import Console

_MAX_TYPE_CHARS = 22  #: Characters of a type in a line of the list of columns.
_OUTCOME_COLOURS = {"correct": "green", "incorrect": "red"}
_LABEL_SIGNS = {True: "[green]+[/]", False: "[red]-[/]", None: "[yellow]?[/]"}


def print_summary(statistics: DatasetStatistics, title: str) -> None:
    """Print a dataset as a table, then the warnings about it."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=escape_for_terminal(title),
        title_justify="left",
        show_header=False,
        box=None,
        pad_edge=False,
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in summary_rows(statistics):
        table.add_row(*map(escape_for_terminal, row))
    Console().print(table)
    for warning in dataset_warnings(statistics):
        text = escape_for_terminal(with_flags(warning, {}))
        Console().print(f"[yellow]warning:[/] {text}", highlight=False)


def escape_for_terminal(text: str) -> str:
    r"""Escape a text, so that it contains no markup of rich and no control characters.

    The function of rich leaves ``\[`` as it is, and prints ``[`` for it. Markup may not follow at
    once, because a backslash at the end would escape it.
    """
    from rich.markup import RE_TAGS, escape

    text = strip_control_characters(text)
    parts = []
    position = 0
    for tag in RE_TAGS.finditer(text):
        parts += [text[position : tag.start()].replace("\\[", "\\\\["), escape(tag.group())]
        position = tag.end()
    return "".join(parts) + text[position:].replace("\\[", "\\\\[")


def print_problem(
    problem: Mapping[str, Any], samples: int, gamma: float, label_kind: LabelKind
) -> None:
    """Print a problem with up to ``samples`` solutions and pairs, one step per line."""
    from rich.console import Console

    console = Console(emoji=False)  # otherwise rich prints ":100:" as an emoji
    problem_id = escape_for_terminal(problem["problem_id"])
    source = escape_for_terminal(problem["source"])
    console.rule(f"[bold]{problem_id}[/]  {source}", align="left")
    console.print(
        escape_for_terminal(textwrap.fill(problem["question"], console.width)), highlight=False
    )
    console.print(f"[bold]gold[/] {escape_for_terminal(problem['answer'])}", highlight=False)
    for solution in problem["solutions"][:samples]:
        _print_solution(console, solution, gamma, label_kind)
    _print_count(console, "solutions", len(problem["solutions"]), samples)
    for pair in problem["pairs"][:samples]:
        _print_pair(console, pair, gamma)
    _print_count(console, "pairs", len(problem["pairs"]), samples)
    console.print()


def _print_count(console: Console, kind: str, total: int, limit: int) -> None:
    """Print how many solutions or pairs of a problem are shown, if not all are."""
    if total > limit:
        console.print(
            f"\n[dim]{limit} of {total} {kind} of this problem; --samples {total} shows all[/]",
            highlight=False,
        )


def print_columns(columns: Mapping[str, Sequence[ColumnSummary]]) -> None:
    """Print the columns of each config with type, version, nulls and description."""
    from rich.console import Console
    from rich.table import Table

    for config, summaries in columns.items():
        table = Table(title=f"\n{config}", title_justify="left", box=None, pad_edge=False)
        table.add_column("column", style="bold", no_wrap=True)
        table.add_column("type", overflow="fold", max_width=_MAX_TYPE_CHARS)
        table.add_column("null", justify="right", no_wrap=True)
        table.add_column("description", overflow="fold")
        for column in summaries:
            cells = (column.name, column.type, f"{column.nulls:,}", column.description)
            table.add_row(*map(escape_for_terminal, cells))
        Console().print(table)
    Console().print(f"\nschema {SCHEMA_VERSION}; SCHEMA.md has the rules for values and versions")


def _print_pair(console: Console, pair: Mapping[str, Any], gamma: float) -> None:
    """Print the two solutions of a pair side by side, with reward and α of every step."""
    from rich.table import Table

    table = Table(title=f"\npair, α at γ = {gamma:g}", title_justify="left", box=None, expand=True)
    columns = []
    for side in SIDES:
        solution_id = escape_for_terminal(pair[f"{side}_id"])
        table.add_column(f"{side} {solution_id}", ratio=1, overflow="fold")
        rewards = _format_rewards(pair[f"{side}_rewards"], gamma, is_chosen=side == "chosen")
        steps = [escape_for_terminal(step.rstrip()) for step in pair[f"{side}_steps"]]
        cells = zip_longest(rewards, steps, fillvalue="")
        columns.append([f"{reward} {step}" for reward, step in cells])
    for row in zip_longest(*columns, fillvalue=""):
        table.add_row(*row)
    console.print(table)


def _format_rewards(rewards: Sequence[float] | None, gamma: float, *, is_chosen: bool) -> list[str]:
    """Format reward and α of every step of a chosen or rejected solution; empty without rewards."""
    weights = step_weights(rewards or (), gamma, 1 if is_chosen else -1)
    return [
        f"[dim]{reward:.2f} α {weight:.2f}[/] "
        for reward, weight in zip(rewards or (), weights, strict=True)
    ]


def _print_solution(
    console: Console, solution: Mapping[str, Any], gamma: float, label_kind: LabelKind
) -> None:
    """Print a solution, with label, Monte-Carlo counts, reward and α of every step."""
    colour = _OUTCOME_COLOURS.get(solution["outcome"], "yellow")
    answer = escape_for_terminal(solution["answer"]) if solution["answer"] is not None else "none"
    truncated = ", truncated" if solution["finish_reason"] == "length" else ""
    console.print(
        f"\n[bold {colour}]#{solution['sample_index']} {solution['outcome']}[/]  "
        f"answer {answer}  [dim]{format_token_count(solution['n_tokens'])}{truncated}  "
        f"{escape_for_terminal(solution['solution_id'])}[/]",
        highlight=False,
    )
    for name, value in other_values(solution).items():
        console.print(f"   [dim]{name}[/] {escape_for_terminal(str(value))}", highlight=False)
    steps = solution["completions"]
    labels: Sequence[bool | None] = right_steps(solution, label_kind) or [None] * len(steps)
    is_correct = solution["outcome"] == "correct"
    rewards = _format_rewards(solution["step_rewards"], gamma, is_chosen=is_correct)
    rewards = rewards or [""] * len(steps)
    rollouts = _format_rollouts(solution.get("rollouts")) or [""] * len(steps)
    step_rows = zip(steps, labels, rollouts, rewards, strict=True)
    for number, (step, label, counts, reward) in enumerate(step_rows, start=1):
        body = escape_for_terminal(step.rstrip()).replace("\n", "\n" + " " * 8)
        console.print(
            f" {_LABEL_SIGNS[label]} [dim]{number:>3}[/] {counts}{reward} {body}", highlight=False
        )


def _format_rollouts(rollouts: Sequence[Mapping[str, int] | None] | None) -> list[str]:
    """Return the correct continuations or votes of each step, such as ``3/4``; empty for none."""
    if rollouts is None:
        return []
    texts = [f"{counts['n_correct']}/{counts['n']}" if counts else "–" for counts in rollouts]
    width = max(map(len, texts), default=0)
    return [f"[dim]{text:>{width}}[/] " for text in texts]
