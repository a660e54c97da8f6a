"""Step labels of one labeller, read from a dataset as ``DATA`` or ``DATA:LABELS``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import text_key
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.dataset.step_labels import LabelKind, find_label_kind, read_step_labels
from fsdpo_data.dataset.validate import check_files
from fsdpo_data.problems.question_key import question_key
from fsdpo_data.stages.label_records import LabelRecord
from fsdpo_data.steps.first_error import RIGHT_STEP_LABEL

#: The kinds of labels, and the rewards of a reward model.
ScoreKind: TypeAlias = LabelKind | Literal["rewards"]
#: Kinds of labels: the name in ``DATA:LABELS``, and the column of solutions that has them.
LABEL_COLUMNS: dict[ScoreKind, str] = {
    "imported": "imported_labels",
    "first-error": "labels",
    "rollouts": "rollouts",
    "rewards": "step_rewards",
    "outcome": "outcome",
}
#: Threshold of Monte-Carlo labels: one correct continuation of any number makes a step right.
ANY_CORRECT = 1e-9


class LabellerName(NamedTuple):
    """A dataset, and the kind of its labels."""

    path: Path  #: Directory of the dataset.
    kind: (
        ScoreKind | None
    )  #: A key of :data:`LABEL_COLUMNS`; None for the best labels of the dataset.

    @classmethod
    def parse(cls, text: str) -> LabellerName:
        """Parse ``DATA`` or ``DATA:LABELS``."""
        path, separator, name = text.rpartition(":")
        kind = next((kind for kind in LABEL_COLUMNS if kind == name), None)
        if separator and kind is not None and not Path(text).exists():
            return cls(Path(path), kind)
        return cls(Path(text), None)


@dataclass(frozen=True, slots=True)
class StepScores:
    """The scores that a labeller gives to the steps of a solution."""

    problem: str  #: Id of the problem.
    source: str  #: Source of the problem, such as the name of a benchmark.
    scores: Sequence[float]  #: One score per step; a higher score is more likely right.
    #: Hash of the question and the steps. Two builds on different engines give other texts the
    #: same id.
    text_hash: bytes


@dataclass(frozen=True, slots=True)
class Labeller:
    """All labels of one labeller."""

    name: str  #: The dataset and the kind of its labels.
    threshold: float  #: A step is right if its score is at least the threshold.
    solutions: dict[Hashable, StepScores]  #: Scores by a key of the solution.
    votes: int | None = None  #: Votes or continuations behind each score, if all have the same.


def read_labeller(
    text: str,
    threshold: float | None,
    field: str,
    *,
    is_calibrated: bool = False,
    match: Literal["id", "text"] = "id",
) -> Labeller:
    """Read the labels of ``DATA`` or ``DATA:LABELS``.

    Args:
        text: The dataset, and the kind of labels.
        threshold: Smallest score of a right step. None for the usual one: any correct continuation
            of Monte-Carlo labels, and 0.5 of other labels.
        field: Name of the option, for errors.
        is_calibrated: Whether the caller chooses another threshold.
        match: The key of a solution: its id, or its question and steps. Equal solutions of a
            dataset also have their number among these in the key.

    Raises:
        InputError: if the dataset has no such labels, or if they have no usual threshold.
        SchemaError: if it is not a sealed dataset, or was changed after the seal.
    """
    path, kind = LabellerName.parse(text)
    manifest = read_manifest(path)
    check_files(path, manifest.files)
    kind = kind or _best_kind(manifest)
    rows = _read_rows(path, manifest, LABEL_COLUMNS[kind])
    if kind == "first-error" and not manifest.labels_are_searched:
        rows = []
    solutions: dict[Hashable, StepScores] = {}
    text_counts: Counter[Hashable] = Counter()
    vote_counts: set[int] = set()
    for row in rows:
        scores = _scores(row, kind)
        if not scores:
            continue
        if kind == "rollouts":
            vote_counts |= {counts["n"] for counts in row["rollouts"][:-1]}
        text_hash = _text_hash(row)
        key: Hashable = row["solution_id"]
        if match == "text":
            key = (text_hash, text_counts[text_hash])
            text_counts[text_hash] += 1
        solutions[key] = StepScores(row["problem_id"], row["source"], scores, text_hash)
    if not solutions:
        raise InputError(
            f"the dataset has no {kind} labels for all steps of a solution. Choose other labels "
            f"with DATA:LABELS, one of {', '.join(LABEL_COLUMNS)}.",
            field=field,
            value=text,
        )
    if threshold is None:
        has_usual_threshold = kind != "rewards" or manifest.rewards_are_probabilities
        if not has_usual_threshold and not is_calibrated:
            raise InputError(
                "the step rewards are not probabilities, so 0.5 does not separate right from wrong "
                f"steps. Each is a {manifest.reward_meaning}. Give a threshold, or let `calibrate` "
                "choose the threshold of the second labeller.",
                field=field,
                value=text,
            )
        record = manifest.find("label", LabelRecord)
        is_judged = record is not None and record.options.judge is not None
        is_monte_carlo = kind == "rollouts" and not is_judged
        threshold = ANY_CORRECT if is_monte_carlo else RIGHT_STEP_LABEL
    votes = vote_counts.pop() if len(vote_counts) == 1 else None
    return Labeller(f"{path}:{kind}", threshold, solutions, votes)


def _best_kind(manifest: Manifest) -> ScoreKind:
    """Return the labels that trainers read, or step rewards if these labels are outcomes."""
    kind = find_label_kind(manifest)
    if kind == "outcome" and manifest.is_written("step_rewards"):
        return "rewards"
    return kind


def _read_rows(path: Path, manifest: Manifest, column: str) -> list[dict[str, Any]]:
    """Return the solutions with a value in ``column``, with their texts, problem and source."""
    problems = scan_rows("problems", manifest.config_paths(path, "problems"))
    solutions = scan_rows("solutions", manifest.config_paths(path, "solutions"))
    if column == "step_rewards":
        # Convert through text: a 32-bit 0.7 reaches the threshold 0.7.
        texts = pl.col(column).cast(pl.List(pl.String))
        solutions = solutions.with_columns(texts.cast(pl.List(pl.Float64)))
    rows = solutions.select("solution_id", "problem_id", "completions", column).drop_nulls(column)
    columns = problems.select("problem_id", "source", "question")
    return collect_rows(rows.join(columns, on="problem_id", how="left")).to_dicts()


def _text_hash(row: dict[str, Any]) -> bytes:
    """Return a hash of the key of the question and the steps, without differences in space."""
    steps = [" ".join(step.split()) for step in row["completions"]]
    return text_key(json.dumps([question_key(row["question"]), *steps]))


def _scores(row: dict[str, Any], kind: ScoreKind) -> list[float] | None:
    """Return the score of each step; None if a step has none."""
    if kind == "rewards":
        return row["step_rewards"]  # type: ignore[no-any-return]
    return read_step_labels(row, kind)
