"""The step labels of a dataset: which of its columns has them, and their values as numbers.

A dataset has one kind of labels: those that were made last. A dataset with imported labels may have
been labelled again, for example by a judge. A solution without labels of this kind has none: its
labels were dropped, or could not be determined, so labels of another kind must not replace them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.steps.first_error import RIGHT_STEP_LABEL
from fsdpo_data.steps.rewards import outcome_labels

#: ``imported``: labels of others. ``first-error``: the result of a search for the first error.
#: ``rollouts``: the fraction of correct continuations, or of a judge's votes without an error so
#: far. ``outcome``: the outcome of the solution at every step.
LabelKind: TypeAlias = Literal["imported", "first-error", "rollouts", "outcome"]


#: All kinds, those that are made last first. An import starts a dataset, so its labels are earlier
#: than those of ``fsdpo-data label``.
_LAST_KINDS: Sequence[LabelKind] = ("first-error", "rollouts", "imported", "outcome")


def find_label_kind(manifest: Manifest) -> LabelKind:
    """Return the kind of the labels that the stages of a dataset have written last."""
    if manifest.labels_are_searched:
        return "first-error"
    if manifest.is_written("rollouts"):
        return "rollouts"
    return "imported" if manifest.is_written("imported_labels") else "outcome"


def infer_label_kind(solutions: Iterable[Mapping[str, Any]]) -> LabelKind:
    """Return the kind of the labels in solutions without a manifest that were made last."""
    kinds = {_last_kind(solution) for solution in solutions}
    return min(kinds, key=_LAST_KINDS.index, default="outcome")


def _last_kind(solution: Mapping[str, Any]) -> LabelKind:
    """Return the kind of the labels of a solution that were made last."""
    step_counts = solution["rollouts"]
    # Only a search gives the steps of a solution different labels in ``labels``, and leaves steps
    # without counts.
    if len(set(solution["labels"] or ())) > 1 or None in (step_counts or ()):
        return "first-error"
    if step_counts is not None:
        return "rollouts"
    return "imported" if solution["imported_labels"] is not None else "outcome"


def right_steps(solution: Mapping[str, Any], kind: LabelKind) -> list[bool] | None:
    """Return whether each step of a solution is right; None without labels of this kind."""
    labels = read_step_labels(solution, kind)
    return None if labels is None else [label >= RIGHT_STEP_LABEL for label in labels]


def read_step_labels(solution: Mapping[str, Any], kind: LabelKind) -> list[float] | None:
    """Return the label of each step of a solution, from 0 (wrong) to 1 (right).

    Args:
        solution: The columns of the solution that ``kind`` needs.
        kind: The kind of labels.

    Returns:
        One label per step. None if the solution has no labels of this kind, or only some.
    """
    labels: Sequence[float] | None
    match kind:
        case "imported":
            labels = solution["imported_labels"]
        case "first-error":
            labels = solution["labels"]
        case "outcome":
            labels = outcome_labels(solution["outcome"], len(solution["completions"]))
        case "rollouts":
            step_counts = solution["rollouts"]
            if step_counts is None or None in step_counts:
                return None
            labels = [counts["n_correct"] / counts["n"] for counts in step_counts]
    return None if labels is None else [float(label) for label in labels]
