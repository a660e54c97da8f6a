"""Print recipes with their cost."""

from collections.abc import Sequence

from fsdpo_bench.recipes.recipe import Recipe, RecipeStage, measured_cost
from fsdpo_bench.report.tables import print_table, print_text
from fsdpo_data.planning.workload import Gpu, estimate


def print_recipes(recipes: Sequence[Recipe]) -> None:
    """Print the list of recipes."""
    rows = [
        (recipe.name, str(len(recipe.stages)), f"{recipe.gpu_hours:,.0f}", recipe.title)
        for recipe in recipes
    ]
    print_table(("recipe", "stages>", "GPU-hours>", "title"), rows)


def print_costs(stages: Sequence[RecipeStage], gpu: Gpu, price: float | None) -> None:
    """Print the estimated and the measured cost of stages.

    Args:
        stages: The stages.
        gpu: GPU for the estimate.
        price: Price of one GPU-hour.
    """
    rows = []
    total_hours = 0.0
    for stage in stages:
        estimated = estimate(stage.work, gpu)
        measured_stage = measured_cost(stage)
        gpu_hours = estimated.gpu_hours
        total_hours += gpu_hours
        rows.append(
            (
                stage.name,
                str(stage.gpus),
                _format_tokens(estimated.tokens),
                _format_hours(gpu_hours),
                _format_hours(gpu_hours / stage.gpus if stage.gpus else 0.0),
                _format_hours(price and gpu_hours * price),
                _format_tokens(measured_stage.tokens if measured_stage else None),
                _format_hours(measured_stage.gpu_hours if measured_stage else None),
            )
        )
    total_price = _format_hours(price and total_hours * price)
    rows.append(("all", "", "", _format_hours(total_hours), "", total_price, "", ""))
    columns = (
        "stage",
        "GPUs>",
        "tokens>",
        "GPU-hours>",
        "hours>",
        "price>",
        "measured tokens>",
        "measured GPU-hours>",
    )
    print_table(columns, rows)


def print_plan(
    recipe: Recipe, stages: Sequence[RecipeStage], gpu: Gpu, price: float | None
) -> None:
    """Print the purpose, the cost and the commands of stages; see :func:`print_costs`."""
    print_text(f"{recipe.title}\n{recipe.about}\n")
    print_costs(stages, gpu, price)
    print_text(f"\n{gpu.assumptions}\n")
    for stage in stages:
        print_text(f"# {stage.name}: {stage.purpose}\n{stage.command}\n")
    if recipe.expected:
        print_text(f"Results in the paper: {recipe.expected}")


def _format_tokens(count: float | None) -> str:
    if count is None:
        return "–"
    return f"{count / 1e6:,.0f} M" if count >= 1e6 else f"{count:,.0f}"


def _format_hours(value: float | None) -> str:
    """Format hours, or a price, with two decimals."""
    return "–" if value is None else f"{value:,.2f}"
