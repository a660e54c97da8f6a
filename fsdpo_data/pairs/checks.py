"""Checks of the ``pairs`` of a dataset against its solutions, which are already valid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import pydantic

from fsdpo_data.core.entities import MODEL_FAILURES
from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.row_files import find_duplicates, summarize_list
from fsdpo_data.pairs import statistics
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.pairs.first_error import StepPairSettings
from fsdpo_data.pairs.rows import scan_pairs
from fsdpo_data.pairs.statistics import SIDES
from fsdpo_data.steps.first_error import find_first_below


class ImportedPairSettings(FileModel):
    """The origin of imported pairs, whose sides end with the step that differs."""

    style: Literal["imported"]  #: Separates these pairs from the others.


def _style(settings: Any) -> str:
    """Return the style of the options of pairs; ``full`` for those of complete solutions."""
    style = (
        settings.get("style") if isinstance(settings, dict) else getattr(settings, "style", None)
    )
    return "full" if style is None else str(style)


#: The options of pairs in a manifest: Step-DPO pairs, imported ones, or complete solutions.
PairSettings: TypeAlias = Annotated[
    Annotated[StepPairSettings, pydantic.Tag("step-dpo")]
    | Annotated[ImportedPairSettings, pydantic.Tag("imported")]
    | Annotated[PairSpec, pydantic.Tag("full")],
    pydantic.Discriminator(_style),
]
#: Columns of solutions that the checks compare with the pairs.
_COLUMNS = ("problem_id", "prompt", "completions", "step_rewards", "outcome", "finish_reason")


def find_violations(
    pairs: Sequence[Path],
    solutions: Sequence[Path],
    settings: PairSettings,
) -> Iterator[str]:
    """Yield one line for every broken invariant of the pairs.

    Args:
        pairs: Files of pairs.
        solutions: Files of solutions.
        settings: Options of the pair selection, from the manifest.
    """
    has_step_pairs = isinstance(settings, StepPairSettings)
    if isinstance(settings, StepPairSettings):
        violations = _step_pair_violations()
    else:
        violations = _solution_pair_violations(settings)
    violating_pairs: dict[str, list[str]] = {violation: [] for violation in violations}
    # The chosen side of a step pair is a continuation, not a solution of the dataset.
    sides = ("rejected",) if has_step_pairs else SIDES
    for frame in statistics.join_solutions(pairs, solutions, _COLUMNS, sides):
        for violation, is_broken in violations.items():
            rows = frame.filter(is_broken).select("chosen_id", "rejected_id").iter_rows()
            violating_pairs[violation] += [" > ".join(row) for row in rows]
    key = ("prompt", "chosen", "rejected") if has_step_pairs else ("chosen_id", "rejected_id")
    duplicates = find_duplicates(scan_pairs(pairs), key, "rejected_id")
    violating_pairs["occur more than once"] = duplicates
    for violation, ids in violating_pairs.items():
        if ids:
            yield f"{len(ids)} pairs {violation}: {summarize_list(ids)}"
    if isinstance(settings, StepPairSettings):
        yield from _find_misplaced_errors(pairs, settings.stored_threshold)


def pair_violations() -> list[str]:
    """Return the violations that pairs of any style are checked for."""
    return list(
        {
            **_solution_pair_violations(PairSpec()),
            **_step_pair_violations(),
            **_imported_pair_violations(),
        }
    )


def _solution_pair_violations(settings: ImportedPairSettings | PairSpec) -> dict[str, pl.Expr]:
    """Return the violations of pairs whose sides are both solutions of the dataset.

    Each value selects the broken rows, and its key completes the sentence "N pairs …".
    """
    chosen_is_truncated = pl.col("chosen_finish_reason") != "stop"
    rejected_is_truncated = pl.col("rejected_finish_reason") != "stop"
    violations = {
        "pair a solution with itself": pl.col("chosen_id") == pl.col("rejected_id"),
        **_side_violations("chosen"),
        **_side_violations("rejected"),
    }
    if isinstance(settings, ImportedPairSettings):
        return violations | _imported_pair_violations()
    violations["contain a truncated solution"] = chosen_is_truncated | rejected_is_truncated
    if settings.require_outcome:
        chosen_is_not_correct = pl.col("chosen_outcome") != "correct"
        rejected_is_not_incorrect = ~pl.col("rejected_outcome").is_in(MODEL_FAILURES)
        violation = "have a chosen solution that is not correct, or a rejected one not incorrect"
        violations[violation] = chosen_is_not_correct | rejected_is_not_incorrect
    return violations


def _step_pair_violations() -> dict[str, pl.Expr]:
    """Return the violations of pairs whose chosen side continues a prefix of the rejected one."""
    chosen_text = pl.col("chosen_steps").list.join("")
    is_not_incorrect = ~pl.col("rejected_outcome").is_in(MODEL_FAILURES)
    return {
        "have a chosen text that differs from its steps": pl.col("chosen") != chosen_text,
        **_side_violations("rejected"),
        "reject a truncated solution": pl.col("rejected_finish_reason") != "stop",
        "reject a solution that is not incorrect": is_not_incorrect,
    }


def _imported_pair_violations() -> dict[str, pl.Expr]:
    """Return the violations of pairs whose sides end with the first step that differs."""
    chosen_steps = pl.col("chosen_steps")
    rejected_steps = pl.col("rejected_steps")
    shared_steps_differ = chosen_steps.list.slice(0, chosen_steps.list.len() - 1) != (
        rejected_steps.list.slice(0, rejected_steps.list.len() - 1)
    )
    last_steps_are_equal = chosen_steps.list.last() == rejected_steps.list.last()
    return {"do not differ in their last step alone": shared_steps_differ | last_steps_are_equal}


def _side_violations(side: str) -> dict[str, pl.Expr]:
    """Return the violations of pairs that contradict the solution on one side."""
    solution_problem = pl.col(f"{side}_problem_id")
    solution_prompt = pl.col(f"{side}_prompt")
    steps = pl.col(f"{side}_steps")
    solution_steps = pl.col(f"{side}_completions")
    rewards = pl.col(f"{side}_rewards")
    solution_rewards = pl.col(f"{side}_step_rewards")
    return {
        f"have a {side} solution that is missing in the dataset": solution_problem.is_null(),
        f"have a {side} solution of another problem": solution_problem != pl.col("problem_id"),
        f"have another prompt than the {side} solution": solution_prompt != pl.col("prompt"),
        f"have a {side} text that differs from its steps": pl.col(side) != steps.list.join(""),
        f"have {side} steps that differ from the solution": steps != solution_steps,
        f"have {side} rewards that differ from the solution": rewards.ne_missing(solution_rewards),
    }


def _find_misplaced_errors(pairs: Sequence[Path], threshold: float) -> Iterator[str]:
    """Yield a line if pairs differ before or after the first error of their rejected side."""
    ids = []
    for row in statistics.read_pair_steps(pairs):
        first_error = find_first_below(row["rejected_rewards"] or [], threshold)
        if statistics.find_first_difference(row).step != first_error:
            ids.append(row["rejected_id"])
    if ids:
        yield (
            f"{len(ids)} pairs do not differ first at the first step below {threshold:.6g}: "
            f"{', '.join(ids[:3])}"
        )
