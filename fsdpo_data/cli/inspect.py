"""A readable view of problems and their step-marked solutions in the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError


def pick_problems(
    root: Path, *, problem: str | None, count: int, outcome: str | None, seed: int
) -> list[dict[str, Any]]:
    """Return problems with their solutions under ``solutions``.

    Args:
        root: A sealed dataset.
        problem: Id, or its beginning, of the one problem to show; otherwise some are drawn.
        count: Problems to draw.
        outcome: Only solutions of this outcome, and problems that have one.
        seed: For the draw.

    Raises:
        InputError: if nothing matches.
    """
    import polars as pl

    problems = pl.scan_parquet(root / "problems" / "*.parquet")
    solutions = pl.scan_parquet(root / "solutions" / "*.parquet")
    if outcome:
        solutions = solutions.filter(pl.col("outcome") == outcome)
        problems = problems.join(solutions, on="problem_id", how="semi")
    if problem:
        problems = problems.filter(pl.col("problem_id").str.starts_with(problem))
    chosen = problems.collect()
    if chosen.is_empty():
        wanted = f"problem {problem!r}" if problem else f"a solution with outcome {outcome!r}"
        raise InputError(f"{root} holds no {wanted}. Leave the option out to see what is there.")
    chosen = chosen.head(count) if problem else chosen.sample(min(count, len(chosen)), seed=seed)
    wanted_ids = chosen["problem_id"].implode()
    grouped = (
        solutions.filter(pl.col("problem_id").is_in(wanted_ids))
        .sort("sample_index")
        .collect()
        .partition_by("problem_id", as_dict=True)
    )
    return [
        {**row, "solutions": grouped[(row["problem_id"],)].to_dicts()}
        for row in chosen.iter_rows(named=True)
        if (row["problem_id"],) in grouped
    ]


def print_problem(problem: Mapping[str, Any], samples: int) -> None:
    """Print a problem and up to ``samples`` of its solutions, a step at a time."""
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    console.rule(f"[bold]{problem['problem_id']}[/]  {escape(problem['source'])}", align="left")
    console.print(textwrap.fill(problem["question"], console.width), markup=False, highlight=False)
    console.print(f"[bold]gold[/] {escape(problem['answer'])}", highlight=False)
    for solution in problem["solutions"][:samples]:
        _print_solution(console, solution)
    hidden = len(problem["solutions"]) - samples
    if hidden > 0:
        console.print(f"\n[dim]{hidden} more; --samples {len(problem['solutions'])} shows all[/]")
    console.print()


def _print_solution(console: Any, solution: Mapping[str, Any]) -> None:
    from rich.markup import escape

    colour = {"correct": "green", "incorrect": "red"}.get(solution["outcome"], "yellow")
    answer = escape(solution["answer"]) if solution["answer"] is not None else "none"
    cut = ", truncated" if solution["finish_reason"] == "length" else ""
    console.print(
        f"\n[bold {colour}]#{solution['sample_index']} {solution['outcome']}[/]  "
        f"answer {answer}  [dim]{solution['n_tokens']} tokens{cut}  {solution['solution_id']}[/]",
        highlight=False,
    )
    steps = solution["completions"]
    labels = solution["labels"] or [None] * len(steps)
    rewards = solution["step_rewards"] or [None] * len(steps)
    for number, (step, label, reward) in enumerate(zip(steps, labels, rewards, strict=True), 1):
        sign = {True: "[green]+[/]", False: "[red]-[/]", None: "[yellow]?[/]"}[label]
        score = f" {reward:.2f}" if reward is not None else ""
        body = escape(step.rstrip()).replace("\n", "\n" + " " * 8)
        console.print(f" {sign} [dim]{number:>3}{score}[/]  {body}", highlight=False)
