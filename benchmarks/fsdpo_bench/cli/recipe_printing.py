"""Print recipes with their measured cost."""

from collections.abc import Sequence

from fsdpo_bench.recipes.recipe import Recipe, RecipeStage, measured_cost
from fsdpo_bench.report.tables import print_table, print_text


def print_recipes(recipes: Sequence[Recipe]) -> None:
    """Print the list of recipes."""
    rows = [(recipe.name, str(len(recipe.stages)), recipe.title) for recipe in recipes]
    print_table(("recipe", "stages>", "title"), rows)


def print_costs(stages: Sequence[RecipeStage]) -> None:
    """Print the measured cost of stages; training does not record it."""
    rows = []
    for stage in stages:
        cost = measured_cost(stage)
        tokens = _format_tokens(cost.tokens if cost else None)
        hours = f"{cost.gpu_hours:,.2f}" if cost else "–"
        rows.append((stage.name, str(stage.gpus), tokens, hours))
    print_table(("stage", "GPUs>", "measured tokens>", "measured GPU-hours>"), rows)


def print_plan(recipe: Recipe, stages: Sequence[RecipeStage]) -> None:
    """Print the purpose, the cost and the commands of stages; see :func:`print_costs`."""
    print_text(f"{recipe.title}\n{recipe.about}\n")
    print_costs(stages)
    print_text("")
    for stage in stages:
        print_text(f"# {stage.name}: {stage.purpose}\n{stage.command}\n")
    if recipe.expected:
        print_text(f"Results in the paper: {recipe.expected}")


def _format_tokens(count: float | None) -> str:
    if count is None:
        return "–"
    return f"{count / 1e6:,.0f} M" if count >= 1e6 else f"{count:,.0f}"
