"""Print recipes with their measured cost."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from fsdpo_bench.recipes.paper_tables import PaperCell
from fsdpo_bench.recipes.recipe import Recipe, RecipeStage, measured_cost
from fsdpo_bench.report.terminal_tables import print_table, print_text

#: Titles of the paper's tables and figures.
_TABLE_TITLES = {
    "1": "Table 1: MATH and GSM8K, greedy decoding (%)",
    "2": "Table 2: out-of-domain benchmarks (%)",
    "more-ood": "Appendix: more out-of-domain benchmarks (%)",
    "prm": "Appendix: reward models, best-of-8 (%)",
    "verify": "Figure: decoders (%)",
    "simulation": "Figure: continuations per step N (%, and A100-hours)",
}


def print_recipes(recipes: Sequence[Recipe]) -> None:
    """Print the list of recipes, with the GPUs, samples and pairs that they need."""
    rows = [
        (
            recipe.name,
            str(len(recipe.stages)),
            str(recipe.gpus),
            _join_counts(stage.samples for stage in recipe.stages),
            _join_counts(stage.pairs for stage in recipe.stages),
            recipe.title,
        )
        for recipe in recipes
    ]
    print_table(("recipe", "stages>", "GPUs>", "samples", "pairs", "title"), rows)


def _join_counts(counts: Iterable[str]) -> str:
    """Return the counts of the stages in words: how often each occurs."""
    times_by_count = Counter(count for count in counts if count)
    texts = [
        f"{times} x {count}" if times > 1 else count for count, times in times_by_count.items()
    ]
    return " + ".join(texts) or "–"


def print_paper_tables(cells: Sequence[PaperCell]) -> None:
    """Print the paper's tables with our numbers next to theirs."""
    for table, title in _TABLE_TITLES.items():
        table_cells = [cell for cell in cells if cell.published.table == table]
        if not table_cells:
            continue
        tasks = list(dict.fromkeys(cell.published.task for cell in table_cells))
        columns = [column for task in tasks for column in (f"{task}>", "ours")]
        rows: dict[str, dict[str, PaperCell]] = {}
        for cell in table_cells:
            decode = "" if cell.published.decode == "greedy" else cell.published.decode
            label = " ".join(part for part in (cell.published.label, decode) if part)
            rows.setdefault(label, {})[cell.published.task] = cell
        print_text(title)
        print_table(
            ("model", *columns),
            [(label, *_row_texts(by_task, tasks)) for label, by_task in rows.items()],
        )
        print_text("")


def _row_texts(by_task: Mapping[str, PaperCell], tasks: Sequence[str]) -> list[str]:
    """Return the paper's number and ours for each task."""
    texts = []
    for task in tasks:
        cell = by_task.get(task)
        texts += ["", ""] if cell is None else [str(cell.published.value), cell.ours or "not run"]
    return texts


def print_costs(stages: Sequence[RecipeStage]) -> None:
    """Print the measured cost of stages; training does not record it."""
    rows = []
    for stage in stages:
        cost = measured_cost(stage)
        tokens = _format_tokens(cost.tokens if cost else None)
        hours = _format_hours(cost.gpu_hours if cost else None)
        counts = (stage.samples or "–", stage.pairs or "–")
        rows.append((stage.name, str(stage.gpus), *counts, tokens, hours))
    columns = ("stage", "GPUs>", "samples>", "pairs>", "measured tokens>", "measured GPU-hours>")
    print_table(columns, rows)


def print_plan(recipe: Recipe, stages: Sequence[RecipeStage]) -> None:
    """Print the purpose, the cost and the commands of stages; see :func:`print_costs`."""
    print_text(f"{recipe.title}\n{recipe.about}\n")
    print_costs(stages)
    print_text("")
    for stage in stages:
        print_text(f"# {stage.name}: {stage.purpose}\n{stage.command}\n")


def _format_tokens(count: float | None) -> str:
    if count is None:
        return "–"
    return f"{count / 1e6:,.0f} M" if count >= 1e6 else f"{count:,.0f}"


def _format_hours(hours: float | None) -> str:
    return "–" if hours is None else f"{hours:,.2f}"
