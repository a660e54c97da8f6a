"""Solutions whose verdict differs from the verdict that an imported file recorded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fsdpo_data.core.entities import GRADED_OUTCOMES
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import scan_rows

IMPORTED_COLUMN = "imported_correct"  #: Column of solutions with the imported verdicts.


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A solution with two different verdicts."""

    solution_id: str  #: Id of the solution.
    question: str  #: The question.
    gold: str  #: The gold answer.
    answer: str | None  #: The extracted answer.
    outcome: str  #: The verdict of the grader.
    imported_correct: bool  #: The imported verdict.


@dataclass(frozen=True, slots=True)
class VerdictComparison:
    """The verdicts of a dataset next to the imported ones."""

    compared: int  #: Solutions with both verdicts.
    disagreements: list[Disagreement]  #: Solutions whose verdicts differ.


def compare_verdicts(root: Path) -> VerdictComparison:
    """Compare the verdicts of a dataset with the imported ones.

    Answers that the grader left undecided have no verdict.

    Raises:
        InputError: if the dataset has no imported verdicts.
    """
    manifest = read_manifest(root)
    problems = scan_rows("problems", manifest.config_paths(root, "problems")).rename(
        {"answer": "gold"}
    )
    recorded = (
        scan_rows("solutions", manifest.config_paths(root, "solutions"))
        .filter(pl.col(IMPORTED_COLUMN).is_not_null())
        .join(problems.select("problem_id", "question", "gold"), on="problem_id")
        .sort("problem_id", "sample_index")
        .select("solution_id", "question", "gold", "answer", "outcome", IMPORTED_COLUMN)
    )
    rows = collect_rows(recorded)
    if not rows.height:
        raise InputError(
            f"{root} has no recorded verdicts. Import a file whose rows have them.", field="data"
        )
    decided = rows.filter(pl.col("outcome").is_in(GRADED_OUTCOMES))
    differing = decided.filter((pl.col("outcome") == "correct") != pl.col(IMPORTED_COLUMN))
    return VerdictComparison(
        compared=decided.height,
        disagreements=[Disagreement(*row) for row in differing.iter_rows()],
    )
