"""What step rewards are worth on a dataset of solutions: ranking, best-of-N, and step truth.

Ranking and best-of-N need outcomes only. Where the problems are the embedded world's, it is known
of every step whether it is right, and rewards before and after the first wrong step are compared.
"""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fsdpo_data.core.entities import GRADED_OUTCOMES, Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.row_files import scan_parquet
from fsdpo_data.core.statistics import RankingAuc, auc, mean_interval, ranking_auc
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.validate import check_files
from fsdpo_data.problems.embedded.solutions import first_wrong_step
from fsdpo_data.steps.rewards import AGGREGATES, aggregate

#: Sizes of the best-of-N curve, as far as there are samples.
SIZES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class ScoredSolution:
    """A graded solution with its rewards."""

    problem: str
    question: str
    prompt: str
    steps: Sequence[str]
    rewards: Sequence[float]
    right: bool
    first_wrong: int | None  #: The first wrong step, from 0; None if there is none; -1 if unknown.


@dataclass(frozen=True, slots=True)
class StepSeparation:
    """Rewards of steps before the first wrong one against those from it on."""

    auc: float | None  #: Chance that a step before, or where none is wrong, is above one after.
    #: Mean reward before less mean reward from it on, within a solution: mean over problems.
    margin: float | None
    ci95: tuple[float, float] | None  #: None where rewards are no probabilities, too.
    problems: int  #: Problems with a solution that goes wrong after a right step.
    solutions: int


def load_scored(root: Path) -> list[ScoredSolution]:
    """Read the scored, graded solutions of a sealed dataset; InputError if it has no rewards."""
    solutions = [each for each in load_graded(root) if each.rewards]
    if not solutions:
        raise InputError(
            f"{root} has no step rewards. Score it with fsdpo-data score, or give `prm`."
        )
    return solutions


def load_graded(root: Path) -> list[ScoredSolution]:
    """Read the graded solutions of a sealed dataset, with no rewards where there are none.

    Raises:
        SchemaError: if it is no sealed dataset, or what is read of it was changed since.
    """
    manifest = read_manifest(root)
    check_files(root, [*manifest.config_files("problems"), *manifest.config_files("solutions")])
    truth, questions = {}, {}
    for row in (
        scan_parquet(manifest.config_paths(root, "problems")).collect().iter_rows(named=True)
    ):
        key, metadata = row.pop("problem_id"), json.loads(row.pop("metadata"))
        questions[key] = row["question"]
        if "nodes" in metadata and "world" in metadata:
            truth[key] = Problem(**row, metadata=metadata)
    rows = (
        scan_parquet(manifest.config_paths(root, "solutions"))
        .filter((pl.col("completions").list.len() > 0) & pl.col("outcome").is_in(GRADED_OUTCOMES))
        .select("problem_id", "prompt", "completions", "step_rewards", "outcome")
        .collect()
    )
    return [
        ScoredSolution(
            row["problem_id"],
            questions[row["problem_id"]],
            row["prompt"],
            row["completions"],
            row["step_rewards"] or [],
            row["outcome"] == "correct",
            first_wrong_step(truth[row["problem_id"]], row["completions"])
            if row["problem_id"] in truth
            else -1,
        )
        for row in rows.iter_rows(named=True)
    ]


def rankings(solutions: Sequence[ScoredSolution]) -> dict[str, RankingAuc]:
    """Return, by aggregate, how well rewards put right solutions of a problem above wrong ones."""
    problems, right = [s.problem for s in solutions], [s.right for s in solutions]
    return {
        how: ranking_auc(problems, [aggregate(s.rewards, how) for s in solutions], right)
        for how in AGGREGATES
    }


def step_truth(solutions: Sequence[ScoredSolution]) -> StepSeparation | None:
    """Compare rewards before and after the first wrong step; None where it is not known."""
    known = [each for each in solutions if each.first_wrong != -1]
    if not known:
        return None
    scores: list[float] = []
    right: list[bool] = []
    margins: dict[str, list[float]] = defaultdict(list)
    for each in known:
        end = len(each.rewards) if each.first_wrong is None else each.first_wrong
        scores += each.rewards
        right += [index < end for index in range(len(each.rewards))]
        if 0 < end < len(each.rewards):
            before, after = each.rewards[:end], each.rewards[end:]
            margins[each.problem].append(statistics.fmean(before) - statistics.fmean(after))
    means = [statistics.fmean(values) for values in margins.values()]
    margin = statistics.fmean(means) if means else None
    # Margins are in [-1, 1]; the interval is one of shares. None tells more than its rewards do.
    bounded = all(0 <= score <= 1 for score in scores)
    groups, size = [((mean + 1) / 2, 1) for mean in means], len(scores) / max(1, len(means))
    found = mean_interval(groups, size) if bounded and len(means) > 1 else None
    interval = found and (2 * found[0] - 1, 2 * found[1] - 1)
    count = sum(map(len, margins.values()))
    return StepSeparation(auc(scores, right), margin, interval, len(means), count)


def best_of_n_curves(solutions: Sequence[ScoredSolution]) -> dict[str, dict[int, float]]:
    """Return the accuracy of best-of-N, by aggregate and N; ``pass`` is that of a perfect judge.

    It is the expectation over which N of a problem's samples are drawn, worked out exactly, so
    there is no luck in it. Equal scores go to the earliest sample. Every problem counts the same.
    """
    groups: dict[str, list[ScoredSolution]] = defaultdict(list)
    for each in solutions:
        groups[each.problem].append(each)
    smallest = min(map(len, groups.values()))
    curves: dict[str, dict[int, float]] = {}
    for how in (*AGGREGATES, "pass"):
        score = partial(_score, how=how)
        ranked = (sorted(group, key=score, reverse=True) for group in groups.values())
        right = [[each.right for each in group] for group in ranked]
        curves[how] = {
            size: statistics.fmean(expected_best(each, size) for each in right)
            for size in SIZES
            if size <= smallest
        }
    return curves


def _score(solution: ScoredSolution, how: str) -> float:
    return float(solution.right) if how == "pass" else aggregate(solution.rewards, how)


def expected_best(right: Sequence[bool], size: int) -> float:
    """Return the chance that the best of ``size`` samples, drawn without replacement, is right.

    ``right`` says of each sample whether it is, the best sample first.
    """
    n, total = len(right), math.comb(len(right), size)
    ways = (math.comb(n - 1 - rank, size - 1) for rank in range(n))
    return sum(way for way, ok in zip(ways, right, strict=True) if ok) / total


def dataset_report(solutions: Sequence[ScoredSolution]) -> dict[str, Any]:
    """Return everything about the rewards of ``solutions`` as plain values."""
    truth = step_truth(solutions)
    return {
        "solutions": len(solutions),
        "problems": len({each.problem for each in solutions}),
        "ranking_auc": {how: asdict(found) for how, found in rankings(solutions).items()},
        "best_of": best_of_n_curves(solutions),
        "steps": truth and asdict(truth),
    }
