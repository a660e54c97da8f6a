"""The kind of step labels of a dataset, and the labels of its solutions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import label_with_rollouts, problem_set, small_build

from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.step_labels import (
    LabelKind,
    find_label_kind,
    infer_label_kind,
    read_step_labels,
    right_steps,
)

COUNTS = [{"n": 8, "n_correct": 7}, {"n": 8, "n_correct": 0}]


def solution(**columns: Any) -> dict[str, Any]:
    return {
        "completions": ["a", "b"],
        "outcome": "incorrect",
        "labels": [False, False],
        "rollouts": None,
        "imported_labels": None,
        **columns,
    }


@pytest.mark.parametrize(
    ("kind", "row", "labels"),
    [
        ("rollouts", solution(rollouts=COUNTS), [0.875, 0.0]),
        ("rollouts", solution(), None),
        ("rollouts", solution(rollouts=[None, COUNTS[1]]), None),
        ("outcome", solution(rollouts=COUNTS), [0.0, 0.0]),
        ("outcome", solution(outcome="undecided", labels=None, rollouts=COUNTS), None),
        ("first-error", solution(labels=[True, False]), [1.0, 0.0]),
        ("first-error", solution(labels=None), None),
        ("imported", solution(imported_labels=[0.7, 0.2], rollouts=COUNTS), [0.7, 0.2]),
        ("imported", solution(), None),
    ],
)
def test_a_solution_has_labels_of_one_kind_or_none(
    kind: LabelKind, row: dict[str, Any], labels: list[float] | None
) -> None:
    assert read_step_labels(row, kind) == labels


def test_the_stages_of_a_dataset_decide_the_kind(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(1))
    assert find_label_kind(read_manifest(tmp_path / "run")) == "outcome"
    label_with_rollouts(tmp_path / "run", tmp_path / "labelled")
    assert find_label_kind(read_manifest(tmp_path / "labelled")) == "rollouts"


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([solution(), solution()], "outcome"),
        ([solution(), solution(rollouts=COUNTS)], "rollouts"),
        ([solution(rollouts=COUNTS), solution(rollouts=[None, COUNTS[1]])], "first-error"),
        # A search of a solution of two steps may continue both.
        ([solution(labels=[True, False], rollouts=COUNTS)], "first-error"),
        ([solution(labels=None), solution(labels=[True, False])], "first-error"),
        ([], "outcome"),
        ([solution(), solution(imported_labels=[1.0, 0.0])], "imported"),
        ([solution(rollouts=COUNTS), solution(imported_labels=[1.0, 0.0])], "rollouts"),
        # A judge has labelled imported solutions, and could not read one of them.
        (
            [
                solution(labels=None, imported_labels=[1.0, 0.0]),
                solution(labels=None, imported_labels=[1.0, 0.0], rollouts=COUNTS),
            ],
            "rollouts",
        ),
    ],
)
def test_solutions_without_a_manifest_show_the_kind(
    rows: list[dict[str, Any]], kind: LabelKind
) -> None:
    assert infer_label_kind(rows) == kind


def test_people_see_the_labels_made_last() -> None:
    """An incorrect solution may have right steps; withheld labels are no outcomes."""
    assert right_steps(solution(rollouts=COUNTS), "rollouts") == [True, False]
    assert right_steps(solution(), "rollouts") is None
    assert right_steps(solution(), "outcome") == [False, False]
    imported = solution(outcome="ungraded", imported_labels=[1.0, 0.4])
    assert right_steps(imported, "imported") == [True, False]
    assert right_steps(solution(outcome="ungraded"), "outcome") is None
