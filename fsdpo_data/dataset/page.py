"""A dataset as a page: what it is like, and its problems with solutions, step rewards and pairs."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fsdpo_cards.pages.browse import OUTCOMES, Browsable, Marks, cut, size
from fsdpo_cards.pages.page import render_page

from fsdpo_data.dataset.card import distributions
from fsdpo_data.dataset.describe import summary_rows, warnings
from fsdpo_data.dataset.manifest import Manifest
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
    root: Path, manifest: Manifest, rows: Iterable[Row], gamma: float, budget: int
) -> str:
    """Render the page; ``rows`` are problems with ``solutions`` and ``pairs``."""
    shown = Browsable(_MARKS, manifest.rows.problems, budget)
    for row in rows:
        _add(shown, row, gamma)
    return render_page(
        Path(__file__).with_name("page.html"),
        shown.data,
        budget=budget,
        title=f"{manifest.spec.model.name} · {root.name}",
        name=root.name,
        table=summary_rows(manifest),
        warnings=warnings(manifest),
        distributions=distributions(root, manifest),
        shown=shown,
    )


def _add(shown: Browsable, row: Row, gamma: float) -> None:
    solutions = {each["solution_id"]: each for each in row["solutions"]}
    prompt, metadata = row["solutions"][0]["prompt"], json.loads(row["metadata"])
    problem = {
        "task": row["source"],
        "id": row["problem_id"],
        **shown.asked(row["question"], row["answer"], prompt),
        "groups": {name: str(metadata[name]) for name in _GROUPS if name in metadata},
        "verdict": _verdict([each["outcome"] for each in row["solutions"]]),
        "decoded": {},
    }
    for pair in row["pairs"]:
        for side in SIDES:
            solutions.setdefault(pair[f"{side}_id"], _continuation(pair, side))
    places = {name: place for place, name in enumerate(solutions)}
    taken = [[places[pair[f"{side}_id"]] for side in SIDES] for pair in row["pairs"]]
    steps = [each["completions"] for each in solutions.values()]
    kept = shown.fitting(steps, [place for pair in taken for place in pair], size(problem))
    listed = list(solutions.values())
    problem["solutions"] = [_solution(shown, listed[index]) for index in kept]
    problem["pairs"] = [
        {
            "sides": SIDES,
            "taken": [kept.get(place) for place in places],
            "weights": alphas(pair, gamma),
        }
        for pair, places in zip(row["pairs"], taken, strict=True)
    ]
    shown.problems.append(problem)


def alphas(pair: Row, gamma: float) -> list[list[float] | None]:
    """Return the step weights α of both sides of a pair; None of a side without rewards."""
    signed = zip(SIDES, (1, -1), strict=True)
    given = [(pair[f"{side}_rewards"], sign) for side, sign in signed]
    return [
        [round(weight, 4) for weight in step_weights(rewards, gamma, sign)] if rewards else None
        for rewards, sign in given
    ]


def _verdict(outcomes: list[str]) -> str:
    right = outcomes.count("correct")
    return ("all" if right == len(outcomes) else "some" if right else "none") + " correct"


def _continuation(pair: Row, side: str) -> Row:
    """Return a side that is no solution of the dataset: a continuation that ended right."""
    told = {"completions": pair[f"{side}_steps"], "step_rewards": pair[f"{side}_rewards"]}
    unknown = dict.fromkeys(("sample_index", "labels", "answer", "n_tokens"))
    return {**told, **unknown, "outcome": "correct", "finish_reason": "stop"}


def _solution(shown: Browsable, row: Row) -> dict[str, Any]:
    index, tokens = row["sample_index"], row["n_tokens"]
    return shown.solution(
        "continuation" if index is None else f"sample {index}",
        row["completions"],
        row["step_rewards"],
        labels=row["labels"],
        answer=cut(row["answer"], 300),
        status=row["outcome"],
        rule="",
        tokens="tokens unknown" if tokens is None else f"{tokens} tokens",
        finish=row["finish_reason"],
    )
