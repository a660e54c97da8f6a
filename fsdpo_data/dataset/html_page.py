"""Render a dataset as an HTML page: summary, distributions, problems, solutions and pairs."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fsdpo_cards.page import render_page
from fsdpo_cards.problem_list import (
    DEFAULT_BUDGET_BYTES,
    OUTCOME_MARKS,
    Mark,
    Marks,
    ProblemList,
    shorten,
)
from fsdpo_cards.render import format_token_count

from fsdpo_data.core.row_files import summarize_list
from fsdpo_data.dataset.card import distributions
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.schema import other_values, parse_metadata
from fsdpo_data.dataset.stage_records import (
    PROBLEMS_STAGE,
    SAMPLE_STAGE,
    ProblemsRecord,
    SampleRecord,
)
from fsdpo_data.dataset.statistics import DatasetStatistics
from fsdpo_data.dataset.step_labels import LabelKind, find_label_kind, right_steps
from fsdpo_data.dataset.summary import dataset_warnings, summary_rows
from fsdpo_data.pairs.statistics import SIDES
from fsdpo_data.steps.rewards import step_weights

Row = Mapping[str, Any]

_MARKS: Marks = {
    "all correct": Mark("right", "✓", "all correct"),
    "some correct": Mark("some", "±", "some correct"),
    "none correct": Mark("wrong", "✗", "none correct"),
    **OUTCOME_MARKS,
}
_MAX_COLUMN_CHARS = 80  #: Characters of the value of a column in the head of a solution.
_GROUPS = ("subject", "type", "level")  #: Keys of problem metadata that name groups.


def dataset_page(
    root: Path,
    manifest: Manifest,
    rows: Iterable[Row],
    *,
    gamma: float,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
) -> str:
    """Render the page of a dataset.

    Args:
        root: Directory of the dataset.
        manifest: Its manifest.
        rows: Problems, each with its ``solutions`` and ``pairs``.
        gamma: Inverse temperature of the rewards in step weights.
        budget_bytes: Size of the texts in the page.
    """
    statistics = DatasetStatistics(root, manifest, gamma=gamma)
    problem_list = ProblemList(_MARKS, manifest.rows.problems, budget_bytes)
    label_kind = find_label_kind(manifest)
    for row in rows:
        _add_problem(problem_list, row, gamma, label_kind)
    return render_page(
        Path(__file__).with_name("html_page.html"),
        problem_list.page_data,
        title=page_title(manifest),
        folder=root.name,
        table=summary_rows(statistics),
        warnings=dataset_warnings(statistics),
        distributions=distributions(statistics),
        problem_list=problem_list,
    )


def page_title(manifest: Manifest) -> str:
    """Return the title of a dataset's page: the model, the sources and the number of solutions."""
    problems = manifest.get(PROBLEMS_STAGE, ProblemsRecord)
    model = manifest.get(SAMPLE_STAGE, SampleRecord).options.model
    names = dict.fromkeys(source.name for source in problems.options.sources)
    sources = summarize_list(list(names))
    return f"{model.name} on {sources} · {manifest.rows.solutions:,} solutions"


def _add_problem(problem_list: ProblemList, row: Row, gamma: float, label_kind: LabelKind) -> None:
    """Add a problem with its solutions and pairs to the list of the page."""
    solutions = {
        solution["solution_id"]: _solution_entry(solution, label_kind)
        for solution in row["solutions"]
    }
    metadata = parse_metadata(row["problem_id"], row["metadata"])
    is_correct = [solution["outcome"] == "correct" for solution in row["solutions"]]
    pairs = []
    for pair in row["pairs"]:
        for side in SIDES:
            solutions.setdefault(pair[f"{side}_id"], _continuation_entry(pair, side))
        index_by_id = {solution_id: index for index, solution_id in enumerate(solutions)}
        indices = [index_by_id[pair[f"{side}_id"]] for side in SIDES]
        pairs.append({"sides": SIDES, "taken": indices, "weights": pair_step_weights(pair, gamma)})
    quantity = "some" if any(is_correct) else "none"
    if all(is_correct):
        quantity = "all"
    problem = {
        "task": row["source"],
        "id": row["problem_id"],
        **problem_list.question_entry(
            row["question"], row["answer"], row["solutions"][0]["prompt"]
        ),
        "groups": {name: str(metadata[name]) for name in _GROUPS if metadata.get(name)},
        "verdict": f"{quantity} correct",
        "decoded": {},
        "pairs": pairs,
    }
    problem_list.add_problem(problem, list(solutions.values()), pairs)


def pair_step_weights(pair: Row, gamma: float) -> list[list[float] | None]:
    """Return the step weights α of both sides of a pair; None for a side without rewards."""
    rewards_and_signs = [
        (pair[f"{side}_rewards"], sign) for side, sign in zip(SIDES, (1, -1), strict=True)
    ]
    return [
        [round(weight, 4) for weight in step_weights(rewards, gamma, sign)] if rewards else None
        for rewards, sign in rewards_and_signs
    ]


def _solution_entry(row: Row, label_kind: LabelKind) -> dict[str, Any]:
    return {
        "name": f"sample {row['sample_index']}",
        "steps": row["completions"],
        "rewards": row["step_rewards"],
        "labels": right_steps(row, label_kind),
        "answer": row["answer"],
        "status": row["outcome"],
        "why": "",
        "tokens": format_token_count(row["n_tokens"]),
        "columns": {
            name: shorten(str(value), _MAX_COLUMN_CHARS)
            for name, value in other_values(row).items()
        },
        "finish": row["finish_reason"],
    }


def _continuation_entry(pair: Row, side: str) -> dict[str, Any]:
    """Return the entry of a correct continuation, which is not a solution of the dataset."""
    return {
        "name": "continuation",
        "steps": pair[f"{side}_steps"],
        "rewards": pair[f"{side}_rewards"],
        "answer": None,
        "status": "correct",
        "why": "",
        "finish": "stop",
    }
