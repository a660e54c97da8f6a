"""Recipes as plans for people and machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsdpo_bench.cli.tables import add_row, make_table, print_table
from fsdpo_bench.recipes.recipe import ASSUMPTIONS, Recipe, Stage, estimate
from fsdpo_bench.results.published import published


def print_recipes(recipes: Sequence[Recipe]) -> None:
    """Print what recipes there are."""
    table = make_table("recipe", "stages>", "GPU-hours>", "what it makes")
    for recipe in recipes:
        hours = sum(estimate(stage.work).gpu_hours for stage in recipe.stages)
        add_row(table, recipe.name, str(len(recipe.stages)), f"{hours:,.0f}", recipe.title)
    print_table(table)


def print_plan(recipe: Recipe, stages: Sequence[Stage]) -> None:
    """Print what the stages do and cost, then their commands."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{escape(recipe.title)}\n{escape(recipe.about)}\n")
    table = make_table("stage", "GPUs>", "tokens>", "GPU-hours>", "hours>")
    total = 0.0
    for stage in stages:
        cost = estimate(stage.work)
        total += cost.gpu_hours
        hours = cost.gpu_hours / stage.gpus if stage.gpus else 0.0
        add_row(
            table,
            stage.name,
            str(stage.gpus),
            _tokens(cost.tokens),
            f"{cost.gpu_hours:,.1f}",
            f"{hours:,.1f}",
        )
    add_row(table, "all", "", "", f"{total:,.1f}", "")
    print_table(table)
    console.print(f"\n{ASSUMPTIONS}\n")
    for stage in stages:
        console.print(f"# {stage.name}: {escape(stage.does)}\n{escape(stage.run)}\n")
    if expected := _expected(recipe):
        console.print(f"The paper's row: {expected}")


def _tokens(count: float) -> str:
    return f"{count / 1e6:,.0f} M" if count >= 1e6 else f"{count:,.0f}"


def _expected(recipe: Recipe) -> str:
    """Return the paper's greedy numbers for the row."""
    cells = (
        each
        for each in published()
        if (each.backbone, each.method) == (recipe.backbone, recipe.method)
        and each.table != "prm"
        and each.task != "average"
    )
    return ", ".join(f"{each.task} {each.value}" for each in cells)


def plan_as_dict(recipe: Recipe, stages: Sequence[Stage]) -> dict[str, Any]:
    """Return the plan for machines."""
    return {
        "recipe": recipe.name,
        "title": recipe.title,
        "assumptions": ASSUMPTIONS,
        "stages": [
            {
                "name": stage.name,
                "does": stage.does,
                "run": stage.run,
                "done": stage.done,
                "gpus": stage.gpus,
                "tokens": round(estimate(stage.work).tokens),
                "gpu_hours": round(estimate(stage.work).gpu_hours, 3),
            }
            for stage in stages
        ],
    }
