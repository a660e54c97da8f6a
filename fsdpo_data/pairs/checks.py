"""What must hold for the ``pairs`` of a dataset, whose solutions are valid already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fsdpo_data.core.entities import MODEL_FAILURES
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.row_files import find_duplicates, scan_parquet, summarize_list
from fsdpo_data.pairs import statistics
from fsdpo_data.pairs.first_error import StepPairSpec
from fsdpo_data.pairs.statistics import SIDES

#: What solutions say that pairs must agree with.
_COLUMNS = ("problem_id", "completions", "step_rewards", "outcome", "finish_reason")


def find_violations(
    pairs: Sequence[Path],
    solutions: Sequence[Path],
    spec: Mapping[str, Any],
    pair_stats: Mapping[str, Any],
) -> Iterator[str]:
    """Yield a line for every invariant of the pairs that is broken.

    The files are those of ``pairs`` and of ``solutions``; ``spec`` says how the pairs were chosen,
    ``told`` what the manifest says of them.
    """
    steps = spec.get("style") == "step-dpo"
    rules = _step_rules() if steps else _solution_rules(spec)
    broken: dict[str, list[str]] = {rule: [] for rule in rules}
    sides = SIDES[1:] if steps else SIDES
    for frame in statistics.join_solutions(pairs, solutions, _COLUMNS, sides):
        for rule, holds in rules.items():
            rows = frame.filter(holds).select("chosen_id", "rejected_id").iter_rows()
            broken[rule] += [" > ".join(row) for row in rows]
    key = ("prompt", "chosen", "rejected") if steps else ("chosen_id", "rejected_id")
    broken["occur more than once"] = find_duplicates(scan_parquet(pairs), key, "rejected_id")
    for rule, ids in broken.items():
        if ids:
            yield f"{len(ids)} pairs {rule}: {summarize_list(ids)}"
    if steps:
        yield from _misplaced_errors(pairs, spec.get("threshold", 0))
    if not any(broken.values()):
        yield from _statistics(pairs, solutions, spec, dict(pair_stats))


def _solution_rules(spec: Mapping[str, Any]) -> dict[str, pl.Expr]:
    """Return what is broken where both sides are solutions of the dataset."""
    rules = {
        "join a solution to itself": pl.col("chosen_id") == pl.col("rejected_id"),
        **_side_rules("chosen"),
        **_side_rules("rejected"),
    }
    cut = [pl.col(f"{side}_finish_reason") != "stop" for side in SIDES]
    wrong = pl.col("chosen_outcome") != "correct", ~pl.col("rejected_outcome").is_in(MODEL_FAILURES)
    if spec.get("finished"):  # pairs of earlier releases did not ask for it
        rules["join a solution that stopped on length"] = cut[0] | cut[1]
    if spec.get("require_outcome"):
        told = "prefer a solution that is not correct, or to one that is not incorrect"
        rules[told] = wrong[0] | wrong[1]
    return rules


def _step_rules() -> dict[str, pl.Expr]:
    """Return what is broken where the chosen side is a continuation of the rejected one."""
    joined = pl.col("chosen_steps").list.join("")
    return {
        "have a chosen text that its steps do not join to": pl.col("chosen") != joined,
        **_side_rules("rejected"),
        "reject a solution that stopped on length": pl.col("rejected_finish_reason") != "stop",
        "reject a solution that is not incorrect": ~pl.col("rejected_outcome").is_in(
            MODEL_FAILURES
        ),
    }


def _side_rules(side: str) -> dict[str, pl.Expr]:
    """Return what is broken if the pair does not say the same as the solution it names."""
    own, told = pl.col(f"{side}_problem_id"), pl.col("problem_id")
    steps, own_steps = pl.col(f"{side}_steps"), pl.col(f"{side}_completions")
    rewards, own_rewards = pl.col(f"{side}_rewards"), pl.col(f"{side}_step_rewards")
    return {
        f"name a {side} solution that is not here": own.is_null(),
        f"name a {side} solution of another problem": own != told,
        f"have a {side} text that its steps do not join to": pl.col(side) != steps.list.join(""),
        f"have {side} steps that are not those of the solution": steps != own_steps,
        f"have {side} rewards that are not those of the solution": rewards.ne_missing(own_rewards),
    }


def _misplaced_errors(pairs: Sequence[Path], threshold: float) -> Iterator[str]:
    """Yield a line if the sides of pairs do not differ first at the first error."""
    ids = []
    for row in statistics.read_pair_steps(pairs):
        rewards = row["rejected_rewards"] or []
        error = next((k for k, reward in enumerate(rewards) if reward < threshold), None)
        if statistics.find_first_difference(row)[0] != error:
            ids.append(row["rejected_id"])
    if ids:
        where = f"elsewhere than at the first step below {threshold}"
        yield f"{len(ids)} pairs differ {where}: {', '.join(ids[:3])}"


def _statistics(
    pairs: Sequence[Path], solutions: Sequence[Path], spec: Mapping[str, Any], told: dict[str, Any]
) -> Iterator[str]:
    if spec.get("style") == "step-dpo":
        # Counted from the continuations, which stay where they were made.
        told.pop("resampled", None)
        choice = StepPairSpec(spec.get("threshold", 0.5), spec.get("max_pairs"))
        counted = statistics.step_pair_statistics(pairs, solutions, choice)
    else:
        counted = statistics.pair_statistics(pairs, solutions, spec.get("aggregate", "mean"))
        if not spec.get("finished"):
            del counted["solutions"]["truncated"]
    if counted != told:
        yield f"the pairs are {counted}, the manifest says {told}"
