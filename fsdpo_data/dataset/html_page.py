"""A dataset as a page: what it is like, and its problems with solutions, step rewards and pairs."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fsdpo_cards.pages.page import render_page
from fsdpo_cards.pages.problem_list import OUTCOMES, Marks, ProblemList
from fsdpo_cards.render import tokens

from fsdpo_data.dataset.card import distributions
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.summary import dataset_warnings, summary_rows
from fsdpo_data.pairs.statistics import SIDES
from fsdpo_data.steps.rewards import step_weights

Row = Mapping[str, Any]

_MARKS: Marks = {
    "all correct": ("right", "✓", "all correct"),
    "some correct": ("some", "±", "some correct"),
    "none correct": ("wrong", "✗", "none correct"),
    **OUTCOMES,
}
_GROUPS = ("subject", "type", "level")  #: What sources call the groups of their problems.


def dataset_page(
    root: Path, manifest: Manifest, rows: Iterable[Row], gamma: float, budget_bytes: int
) -> str:
    """Render the page; ``rows`` are problems with ``solutions`` and ``pairs``."""
    shown = ProblemList(_MARKS, manifest.rows.problems, budget_bytes)
    for row in rows:
        _add(shown, row, gamma)
    return render_page(
        Path(__file__).with_name("html_page.html"),
        shown.data,
        title=f"{manifest.spec.model.name} · {root.name}",
        name=root.name,
        table=summary_rows(manifest),
        warnings=dataset_warnings(manifest),
        distributions=distributions(root, manifest),
        shown=shown,
    )


def _add(shown: ProblemList, row: Row, gamma: float) -> None:
    solutions = {each["solution_id"]: _solution(each) for each in row["solutions"]}
    metadata = json.loads(row["metadata"])
    right = [each["outcome"] == "correct" for each in row["solutions"]]
    pairs = []
    for pair in row["pairs"]:
        for side in SIDES:
            solutions.setdefault(pair[f"{side}_id"], _continuation(pair, side))
        places = {name: place for place, name in enumerate(solutions)}
        taken = [places[pair[f"{side}_id"]] for side in SIDES]
        pairs.append({"sides": SIDES, "taken": taken, "weights": pair_step_weights(pair, gamma)})
    problem = {
        "task": row["source"],
        "id": row["problem_id"],
        **shown.question_entry(row["question"], row["answer"], row["solutions"][0]["prompt"]),
        "groups": {name: str(metadata[name]) for name in _GROUPS if metadata.get(name)},
        "verdict": f"{'all' if all(right) else 'some' if any(right) else 'none'} correct",
        "decoded": {},
        "pairs": pairs,
    }
    shown.add(problem, list(solutions.values()), pairs)


def pair_step_weights(pair: Row, gamma: float) -> list[list[float] | None]:
    """Return the step weights α of both sides of a pair; None of a side without rewards."""
    given = [(pair[f"{side}_rewards"], sign) for side, sign in zip(SIDES, (1, -1), strict=True)]
    return [
        [round(weight, 4) for weight in step_weights(rewards, gamma, sign)] if rewards else None
        for rewards, sign in given
    ]


def _solution(row: Row) -> dict[str, Any]:
    return {
        "name": f"sample {row['sample_index']}",
        "steps": row["completions"],
        "rewards": row["step_rewards"],
        "labels": row["labels"],
        "answer": row["answer"],
        "status": row["outcome"],
        "why": "",
        "tokens": tokens(row["n_tokens"]),
        "finish": row["finish_reason"],
    }


def _continuation(pair: Row, side: str) -> dict[str, Any]:
    """Return a side that is no solution of the dataset: a continuation that ended right."""
    told = {"steps": pair[f"{side}_steps"], "rewards": pair[f"{side}_rewards"], "answer": None}
    return {"name": "continuation", **told, "status": "correct", "why": "", "finish": "stop"}
