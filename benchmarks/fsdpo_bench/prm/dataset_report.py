"""Quality of step rewards on a dataset of solutions: ranking, best-of-N and step separation.

Ranking and best-of-N need only the outcomes of solutions. Step separation needs the true step
labels. Two kinds of solutions have them: solutions of embedded problems, whose generator can check
every step, and solutions with imported labels.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fsdpo_bench.decoders.choices import distribute_best_of_n, expected_values
from fsdpo_data.core.entities import GRADED_OUTCOMES, Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import np, pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.core.statistics import (
    Interval,
    Mean,
    auc,
    auc_interval,
    mean_difference,
    ranking_auc,
)
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.problem_rows import read_problems
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.dataset.validate import check_files, explain_damage
from fsdpo_data.problems.embedded.solutions import first_wrong_step
from fsdpo_data.steps.rewards import AGGREGATES, aggregate

#: Default values of N of the best-of-N curves. The curves omit values that exceed the number of
#: solutions of more than half of the problems.
BEST_OF_N_SIZES = (1, 2, 4, 8, 16, 32, 64)
#: Value of ``first_wrong_step`` for solutions without true step labels.
UNKNOWN_STEP = -1


@dataclass(frozen=True, slots=True)
class ScoredSolution:
    """A solution with its step rewards, and with an outcome or true step labels."""

    problem_id: str  #: Id of the problem.
    question: str  #: The question of the problem.
    prompt: str  #: The rendered prompt.
    steps: Sequence[str]  #: The steps.
    rewards: Sequence[float]  #: One reward per step; empty without rewards.
    is_correct: bool | None  #: Whether the outcome is ``correct``; None for ungraded solutions.
    #: Index of the first wrong step; None if all steps are right, ``UNKNOWN_STEP`` if unknown.
    first_wrong_step: int | None


@dataclass(frozen=True, slots=True)
class StepSeparation:
    """Rewards of the steps before the first wrong step, compared with the later rewards."""

    #: Probability that a step before an error has a higher reward than a step at or after one.
    #: Steps of all solutions are compared, including solutions without an error.
    auc: float | None
    auc_ci95: Interval | None  #: 95 % interval of the AUC, with problems as units.
    #: Mean reward before the first wrong step minus the mean later reward, within a solution; mean
    #: over problems. None without a solution that has both.
    margin: float | None
    ci95: Interval | None  #: 95 % interval of the margin, for rewards in [0, 1].
    #: Number of problems with a solution that has right steps and then a wrong one.
    problems: int
    solutions: int  #: Number of such solutions.


def load_scored(root: Path) -> list[ScoredSolution]:
    """Read the measurable solutions with step rewards of a sealed dataset.

    Raises:
        InputError: if the dataset has no step rewards, or no measurable solutions.
        SchemaError: if the dataset is not sealed, or its files were changed.
    """
    solutions = [solution for solution in load_measurable(root) if solution.rewards]
    if not solutions:
        raise InputError(
            f"{root} has no step rewards. Score it with fsdpo-data score, or give `prm`."
        )
    return solutions


def load_measurable(root: Path) -> list[ScoredSolution]:
    """Read the solutions of a sealed dataset with an outcome or with imported step labels.

    Solutions have their step rewards, if there are any.

    Raises:
        InputError: if no solution has an outcome or imported step labels.
        SchemaError: if the dataset is not sealed, or its files were changed.
    """
    manifest = read_manifest(root)
    check_files(root, [*manifest.config_files("problems"), *manifest.config_files("solutions")])
    with explain_damage(root):
        solutions = _read_measurable(root, manifest)
    if not solutions:
        raise InputError(
            f"{root} has no graded solutions, and no imported step labels. Grade it with "
            "fsdpo-data grade."
        )
    return solutions


def _read_measurable(root: Path, manifest: Manifest) -> list[ScoredSolution]:
    """Read the measurable solutions of a dataset whose digests match."""
    problems = read_problems(manifest.config_paths(root, "problems"))
    is_measurable = pl.col("outcome").is_in(GRADED_OUTCOMES) | pl.col("step_labels").is_not_null()
    rows = collect_rows(
        scan_rows("solutions", manifest.config_paths(root, "solutions"))
        .filter((pl.col("completions").list.len() > 0) & is_measurable)
        .select(["problem_id", "prompt", "completions", "step_rewards", "outcome", "step_labels"])
    )
    solutions = []
    for row in rows.iter_rows(named=True):
        problem_id = row["problem_id"]
        steps = row["completions"]
        first_wrong: int | None = UNKNOWN_STEP
        if row["step_labels"] is not None:
            wrong_steps = (index for index, label in enumerate(row["step_labels"]) if label < 0.5)
            first_wrong = next(wrong_steps, None)
        elif _has_known_labels(problems[problem_id]):
            first_wrong = first_wrong_step(problems[problem_id], steps)
        is_graded = row["outcome"] in GRADED_OUTCOMES
        solution = ScoredSolution(
            problem_id=problem_id,
            question=problems[problem_id].question,
            prompt=row["prompt"],
            steps=steps,
            rewards=row["step_rewards"] or [],
            is_correct=row["outcome"] == "correct" if is_graded else None,
            first_wrong_step=first_wrong,
        )
        solutions.append(solution)
    return solutions


def _has_known_labels(problem: Problem) -> bool:
    """Return whether the true labels of all steps are known: whether the problem is generated."""
    return "nodes" in problem.metadata and "world" in problem.metadata


def ranking_aucs(solutions: Sequence[ScoredSolution]) -> dict[str, Mean]:
    """Return the ranking AUC of correct over incorrect solutions of a problem, by aggregate.

    Args:
        solutions: Graded solutions with step rewards.
    """
    problem_ids = [solution.problem_id for solution in solutions]
    labels = [bool(solution.is_correct) for solution in solutions]
    aucs = {}
    for name in AGGREGATES:
        scores = [aggregate(solution.rewards, name) for solution in solutions]
        aucs[name] = ranking_auc(problem_ids, scores, labels)
    return aucs


def step_separation(solutions: Sequence[ScoredSolution]) -> StepSeparation | None:
    """Compare the rewards before and after the first wrong step; None without step labels."""
    labelled = [solution for solution in solutions if solution.first_wrong_step != UNKNOWN_STEP]
    if not labelled:
        return None
    scores: list[float] = []
    is_before_error: list[bool] = []
    problem_ids: list[str] = []
    margins_by_problem: dict[str, list[float]] = defaultdict(list)
    for solution in labelled:
        rewards = solution.rewards
        n_right = len(rewards)
        if solution.first_wrong_step is not None:
            n_right = solution.first_wrong_step
        scores += rewards
        problem_ids += [solution.problem_id] * len(rewards)
        is_before_error += [index < n_right for index in range(len(rewards))]
        if 0 < n_right < len(rewards):
            margin = statistics.fmean(rewards[:n_right]) - statistics.fmean(rewards[n_right:])
            margins_by_problem[solution.problem_id].append(margin)
    problem_margins = [statistics.fmean(margins) for margins in margins_by_problem.values()]
    return StepSeparation(
        auc=auc(scores, is_before_error),
        auc_ci95=auc_interval(problem_ids, scores, is_before_error),
        margin=statistics.fmean(problem_margins) if problem_margins else None,
        ci95=margin_interval(problem_margins, scores),
        problems=len(problem_margins),
        solutions=sum(map(len, margins_by_problem.values())),
    )


def margin_interval(problem_margins: Sequence[float], scores: Sequence[float]) -> Interval | None:
    """Return the interval of the mean margin; None for rewards outside [0, 1].

    A margin is a difference of two values in [0, 1], so the interval comes from
    :func:`~fsdpo_data.core.statistics.mean_difference`.

    Args:
        problem_margins: The mean margin of each problem: rewards before minus rewards from the
            first wrong step on.
        scores: The rewards of all steps.
    """
    is_bounded = all(0 <= score <= 1 for score in scores)
    if not is_bounded or len(problem_margins) < 2:
        return None
    return mean_difference(problem_margins).ci95


@dataclass(frozen=True, slots=True)
class BestOfN:
    """The accuracy of best-of-N, over the same problems at every N."""

    #: Accuracy by aggregate and N. The name ``pass`` means a perfect reward model.
    curves: Mapping[str, Mapping[int, float]]
    problems: int  #: Number of problems with solutions for the largest N.
    left_out: int  #: Number of problems with fewer solutions.


def best_of_n_curves(solutions: Sequence[ScoredSolution], sizes: Sequence[int] = ()) -> BestOfN:
    """Return the accuracy of best-of-N, by aggregate and N.

    The accuracy is the exact expectation over all subsets of N samples of a problem. Among equal
    rewards, the earliest sample wins. The problems are the same at every N: those with solutions
    for the largest N. They have the same weight. The name ``pass`` means a perfect reward model, so
    its curve is pass@N.

    Args:
        solutions: Graded solutions with step rewards.
        sizes: Values of N; empty for the values of ``BEST_OF_N_SIZES`` that at least half of the
            problems have.

    Raises:
        InputError: if no problem has N solutions.
    """
    check_best_of(solutions, sizes)
    groups: dict[str, list[ScoredSolution]] = defaultdict(list)
    for solution in solutions:
        groups[solution.problem_id].append(solution)
    sizes = sorted(set(sizes)) or _common_sizes(groups)
    measured_groups = [group for group in groups.values() if len(group) >= sizes[-1]]
    curves: dict[str, dict[int, float]] = {}
    for name in (*AGGREGATES, "pass"):
        accuracy_GS = np.array([_estimate_group(group, name, sizes) for group in measured_groups])
        curves[name] = dict(zip(sizes, accuracy_GS.mean(axis=0).tolist(), strict=True))
    n_measured = len(measured_groups)
    return BestOfN(curves=curves, problems=n_measured, left_out=len(groups) - n_measured)


def _common_sizes(groups: Mapping[str, Sequence[ScoredSolution]]) -> list[int]:
    """Return the values of ``BEST_OF_N_SIZES`` that at least half of the problems have."""
    return [
        size
        for size in BEST_OF_N_SIZES
        if 2 * sum(len(group) >= size for group in groups.values()) >= len(groups)
    ]


def check_best_of(solutions: Sequence[ScoredSolution], sizes: Sequence[int]) -> None:
    """Check that problems have enough graded solutions for best-of-N.

    Args:
        solutions: The solutions; they need no step rewards yet.
        sizes: Values of N.

    Raises:
        InputError: if no problem has N graded solutions.
    """
    counts = Counter(
        solution.problem_id for solution in solutions if solution.is_correct is not None
    )
    if sizes and not counts:
        raise InputError(
            "the dataset has step labels and no graded solutions, so best-of-N is unknown. Leave "
            "the option out.",
            field="k",
            value=list(sizes),
        )
    max_solutions = max(counts.values(), default=0)
    if sizes and max(sizes) > max_solutions:
        raise InputError(
            f"no problem has {max(sizes)} graded solutions; the most is {max_solutions}. Give "
            "smaller values.",
            field="k",
            value=max(sizes),
        )


def _estimate_group(
    group: Sequence[ScoredSolution], aggregate_name: str, sizes: Sequence[int]
) -> np.ndarray:
    """Return the accuracy of best-of-N on the solutions of a problem, by N.

    Args:
        group: The solutions.
        aggregate_name: An aggregate of step rewards; ``pass`` for a perfect reward model.
        sizes: Values of N.
    """
    is_correct = [bool(solution.is_correct) for solution in group]
    rewards: Sequence[float] = is_correct
    if aggregate_name != "pass":
        rewards = [aggregate(solution.rewards, aggregate_name) for solution in group]
    reward_PM, correct_PM = np.array([rewards], dtype=float), np.array([is_correct])
    return np.concatenate(
        [expected_values(distribute_best_of_n(reward_PM, size), correct_PM) for size in sizes]
    )


def dataset_report(
    solutions: Sequence[ScoredSolution], sizes: Sequence[int] = ()
) -> dict[str, Any]:
    """Return all measurements of the step rewards of ``solutions`` as plain JSON.

    Without graded solutions, ``ranking_auc`` and the fields of best-of-N are empty.

    Args:
        solutions: Solutions with step rewards.
        sizes: Values of N for best-of-N; empty for the default values.

    Raises:
        InputError: if ``sizes`` has a value, and no problem has so many graded solutions.
    """
    check_best_of(solutions, sizes)
    separation = step_separation(solutions)
    graded = [solution for solution in solutions if solution.is_correct is not None]
    rankings = ranking_aucs(graded) if graded else {}
    best_of_n = best_of_n_curves(graded, sizes) if graded else BestOfN({}, 0, 0)
    return {
        "solutions": len(solutions),
        "problems": len({solution.problem_id for solution in solutions}),
        "ranking_auc": {name: asdict(ranking) for name, ranking in rankings.items()},
        "best_of": best_of_n.curves,
        "best_of_problems": best_of_n.problems,
        "best_of_left_out": best_of_n.left_out,
        "steps": None if separation is None else asdict(separation),
    }
