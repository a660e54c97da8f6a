"""The paper's tables next to the results of the recipes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdpo_bench.metrics.report_numbers import format_points
from fsdpo_bench.metrics.result_records import Results
from fsdpo_bench.recipes.recipe import Recipe, RecipeStage, measured_cost
from fsdpo_bench.report.published import PublishedResult, published_results
from fsdpo_data.dataset.run_directory import MANIFEST_FILE

#: The column with the mean over the benchmarks of a table.
AVERAGE = "average"
#: The column with the cost of sampling the training data of a reward model.
GPU_HOURS = "gpu-hours"


#: The models of the paper's tables that are not public.
CLOSED_MODELS = ("GPT-3.5", "GPT-4")


@dataclass(frozen=True, slots=True)
class PaperCell:
    """A number of the paper, and ours."""

    published: PublishedResult  #: The number of the paper.
    #: Our number with its interval or number of problems; empty if no recipe has measured it.
    ours: str


def paper_cells(recipes: Sequence[Recipe], *, closed_models: bool = False) -> list[PaperCell]:
    """Return all numbers of the paper that the recipes measure, in the order of the paper.

    Args:
        recipes: The recipes.
        closed_models: Whether to include the models that no recipe can run.
    """
    stages = [stage for recipe in recipes for stage in recipe.stages if stage.measures]
    results = {stage.done_file: stage.read_results() for stage in stages}
    cells = []
    for published in published_results():
        row_stages = [
            stage for stage in stages if stage.measures and stage.measures.includes(published)
        ]
        is_closed = closed_models and bool(stages) and published.backbone in CLOSED_MODELS
        if not row_stages and not is_closed:
            continue
        if published.task == GPU_HOURS:
            ours = _our_hours(row_stages)
        else:
            runs = [results[stage.done_file] for stage in row_stages]
            ours = _our_number(published, [run for run in runs if run is not None])
        cells.append(PaperCell(published, ours))
    return cells


def _our_hours(stages: Sequence[RecipeStage]) -> str:
    """Return the measured hours of the stages that sampled a dataset, in words."""
    sampling = [stage for stage in stages if Path(stage.done_file).name == MANIFEST_FILE]
    costs = [cost for stage in sampling if (cost := measured_cost(stage)) is not None]
    hours = [cost.gpu_hours for cost in costs if cost.gpu_hours is not None]
    return f"{math.fsum(hours):.2f}" if hours and len(hours) == len(costs) else ""


def _our_number(published: PublishedResult, runs: Sequence[Results]) -> str:
    """Return the first accuracy of the runs for a published number, in words."""
    if published.task == AVERAGE:
        return _our_average(published, runs)
    for results in runs:
        task = results.tasks.get(published.task)
        accuracy = task.accuracies.get(published.decode) if task else None
        if task is None or accuracy is None or accuracy.value is None:
            continue
        text = format_points(accuracy)
        return text if task.problems == task.task_problems else f"{text}, n={task.problems:,}"
    return ""


def _our_average(published: PublishedResult, runs: Sequence[Results]) -> str:
    """Return our mean over the benchmarks of the table, if one run has all of them."""
    names = [
        result.task
        for result in published_results()
        if result.table == published.table
        and (result.backbone, result.method) == (published.backbone, published.method)
        and result.task != AVERAGE
    ]
    for results in runs:
        values = list(_accuracies(results, names, published.decode))
        if len(values) == len(names):
            return f"{100 * math.fsum(values) / len(values):.1f} over {len(names)} benchmarks"
    return ""


def _accuracies(results: Results, names: Sequence[str], decode: str) -> Iterator[float]:
    for name in names:
        task = results.tasks.get(name)
        accuracy = task.accuracies.get(decode) if task else None
        if accuracy is not None and accuracy.value is not None:
            yield accuracy.value
