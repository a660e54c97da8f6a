"""Solutions whose verdict differs from the verdict that an imported file recorded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fsdpo_bench.metrics.full_solutions import SolvedProblem, read_solved_problems
from fsdpo_data.core.entities import GRADED_OUTCOMES
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import scan_rows

RECORDED_COLUMN = "recorded_correct"  #: Column of solutions with the imported verdicts.


@dataclass(frozen=True, slots=True)
class VerdictComparison:
    """The verdicts of a dataset next to the imported ones."""

    compared: int  #: Solutions with both verdicts.
    disagreements: list[SolvedProblem]  #: Solutions whose verdicts differ.


def compare_verdicts(root: Path) -> VerdictComparison:
    """Compare the verdicts of a dataset with the imported ones.

    Answers that the grader left undecided have no verdict.

    Raises:
        InputError: if the dataset has no imported verdicts.
    """
    is_recorded = pl.col(RECORDED_COLUMN).is_not_null()
    is_compared = is_recorded & pl.col("outcome").is_in(GRADED_OUTCOMES)
    differs = is_compared & ((pl.col("outcome") == "correct") != pl.col(RECORDED_COLUMN))
    rows = scan_rows("solutions", read_manifest(root).config_paths(root, "solutions"))
    counts = collect_rows(rows.select(recorded=is_recorded.sum(), compared=is_compared.sum()))
    [(n_recorded, n_compared)] = counts.rows()
    if not n_recorded:
        raise InputError(
            f"{root} has no recorded verdicts. Import a file whose rows have them.", field="data"
        )
    disagreements = read_solved_problems(root, differs)
    disagreements.sort(key=lambda entry: (entry.solution.problem_id, entry.solution.sample_index))
    return VerdictComparison(n_compared, disagreements)
