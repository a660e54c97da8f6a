"""Quality of step rewards on a dataset of solutions: ranking, best-of-N and step separation.

Ranking and best-of-N need only the outcomes of solutions. As in reports, undecided answers and
timeouts are wrong, and a solution without rewards is chosen last. Step separation needs the true
step labels. Two kinds of solutions have them: solutions of embedded problems, whose generator can
check every step, and solutions with imported labels.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fsdpo_bench.decoders.estimators import distribute_best_of_n, expected_values
from fsdpo_bench.metrics.full_solutions import read_full_solutions
from fsdpo_bench.metrics.sample_arrays import BenchmarkProblem
from fsdpo_data.core.entities import (
    COUNTED_OUTCOMES,
    Problem,
    Solution,
)
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import np, pl
from fsdpo_data.core.statistics import (
    Interval,
    Mean,
    auc,
    auc_interval,
    mean_difference,
    ranking_auc,
)
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.problem_rows import read_problems
from fsdpo_data.dataset.validate import check_files, explain_damage
from fsdpo_data.problems.benchmark_rows import benchmark_rows
from fsdpo_data.problems.embedded.solutions import first_wrong_step
from fsdpo_data.steps.first_error import RIGHT_STEP_LABEL
from fsdpo_data.steps.rewards import AGGREGATES, aggregate

#: Default values of N of the best-of-N curves. The curves omit values that exceed the number of
#: solutions of more than half of the problems.
BEST_OF_N_SIZES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class SolvedProblem:
    """A problem with one of its solutions."""

    problem: Problem  #: The problem.
    solution: Solution  #: The solution.

    @property
    def cluster(self) -> str:
        """The base problem in a benchmark; without one, the problem."""
        problem_id = self.solution.problem_id
        for benchmark_row in benchmark_rows(self.problem.metadata):
            if benchmark_row.cluster:
                return BenchmarkProblem(problem_id, self.problem, benchmark_row).cluster
        return problem_id


@dataclass(frozen=True, slots=True)
class StepSeparation:
    """Rewards of right steps, compared with the rewards of wrong steps."""

    #: Probability that a right step has a higher reward than a wrong one. Steps of all solutions
    #: are compared, including solutions without an error.
    auc: float | None
    auc_ci95: Interval | None  #: 95 % interval of the AUC, over problems or base problems.
    #: Mean reward before the first wrong step minus the mean later reward, within a solution; mean
    #: over problems. None without a solution that has both.
    margin: float | None
    ci95: Interval | None  #: 95 % interval of the margin, for rewards in [0, 1].
    #: Number of problems with a solution that has right steps and then a wrong one.
    problems: int
    solutions: int  #: Number of such solutions.


def load_scored(root: Path) -> list[SolvedProblem]:
    """Read the measurable solutions of a sealed dataset with step rewards.

    Empty solutions, and solutions that the reward model could not read, have no rewards.

    Raises:
        InputError: if the dataset has no step rewards, or no measurable solutions.
        SchemaError: if the dataset is not sealed, or its files were changed.
    """
    entries = load_measurable(root)
    if not any(map(step_rewards, entries)):
        raise InputError(
            f"{root} has no step rewards. Score it with fsdpo-data score, or give `prm`."
        )
    return entries


def load_measurable(root: Path) -> list[SolvedProblem]:
    """Read the solutions of a sealed dataset with an outcome or with imported step labels.

    Solutions have their step rewards, if there are any.

    Raises:
        InputError: if no solution has an outcome or imported step labels.
        SchemaError: if the dataset is not sealed, or its files were changed.
    """
    manifest = read_manifest(root)
    check_files(root, [*manifest.config_files("problems"), *manifest.config_files("solutions")])
    has_labels = pl.col("outcome").is_in(COUNTED_OUTCOMES) | pl.col("imported_labels").is_not_null()
    with explain_damage(root):
        problems = read_problems(manifest.config_paths(root, "problems"))
        solutions = read_full_solutions(root, has_labels)
    if not solutions:
        raise InputError(
            f"{root} has no graded solutions, and no imported step labels. Grade it with "
            "fsdpo-data grade."
        )
    return [SolvedProblem(problems[solution.problem_id], solution) for solution in solutions]


def has_true_labels(entry: SolvedProblem) -> bool:
    """Return whether the true labels of all steps are known: imported, or of the generator."""
    return entry.solution.imported_labels is not None or _is_generated(entry.problem)


def true_labels(entry: SolvedProblem) -> list[bool]:
    """Return whether each step is right by the true labels.

    Imported labels may call a step after an error right. The generator calls none of them right.
    """
    labels = entry.solution.imported_labels
    if labels is not None:
        return [label >= RIGHT_STEP_LABEL for label in labels]
    steps = entry.solution.completions
    first_error = first_wrong_step(entry.problem, steps)
    return [first_error is None or index < first_error for index in range(len(steps))]


def _is_generated(problem: Problem) -> bool:
    """Return whether an embedded generator made the problem, which can check every step."""
    return "nodes" in problem.metadata and "world" in problem.metadata


def ranking_aucs(graded: Sequence[SolvedProblem]) -> dict[str, Mean]:
    """Return the ranking AUC of correct over incorrect solutions of a problem, by aggregate.

    Args:
        graded: Graded solutions with step rewards.
    """
    problem_ids = [entry.solution.problem_id for entry in graded]
    clusters = [entry.cluster for entry in graded]
    has_bases = clusters != problem_ids
    labels = [entry.solution.outcome == "correct" for entry in graded]
    aucs = {}
    for name in AGGREGATES:
        scores = [aggregate(step_rewards(entry), name) for entry in graded]
        aucs[name] = ranking_auc(problem_ids, scores, labels, clusters if has_bases else None)
    return aucs


def step_rewards(entry: SolvedProblem) -> Sequence[float]:
    """Return the reward of each step; empty without rewards."""
    return entry.solution.step_rewards or ()


def step_separation(entries: Sequence[SolvedProblem]) -> StepSeparation | None:
    """Compare the rewards of right and wrong steps; None without scored solutions with labels."""
    labelled = [entry for entry in entries if has_true_labels(entry) and step_rewards(entry)]
    if not labelled:
        return None
    scores: list[float] = []
    is_right: list[bool] = []
    clusters: list[str] = []
    cluster_by_problem: dict[str, str] = {}
    margins_by_problem: dict[str, list[float]] = defaultdict(list)
    for entry in labelled:
        problem_id = entry.solution.problem_id
        cluster = cluster_by_problem.setdefault(problem_id, entry.cluster)
        rewards = step_rewards(entry)
        labels = true_labels(entry)
        n_right = labels.index(False) if False in labels else len(labels)
        scores += rewards
        clusters += [cluster] * len(rewards)
        is_right += labels
        if 0 < n_right < len(rewards):
            margin = statistics.fmean(rewards[:n_right]) - statistics.fmean(rewards[n_right:])
            margins_by_problem[problem_id].append(margin)
    problem_margins = [statistics.fmean(margins) for margins in margins_by_problem.values()]
    return StepSeparation(
        auc=auc(scores, is_right),
        auc_ci95=auc_interval(clusters, scores, is_right),
        margin=statistics.fmean(problem_margins) if problem_margins else None,
        ci95=margin_interval(
            problem_margins, [cluster_by_problem[key] for key in margins_by_problem], scores
        ),
        problems=len(problem_margins),
        solutions=sum(map(len, margins_by_problem.values())),
    )


def margin_interval(
    problem_margins: Sequence[float], clusters: Sequence[str], scores: Sequence[float]
) -> Interval | None:
    """Return the interval of the mean margin; None for rewards outside [0, 1].

    A margin is a difference of two values in [0, 1], so the interval comes from
    :func:`~fsdpo_data.core.statistics.mean_difference`.

    Args:
        problem_margins: The mean margin of each problem: rewards before minus rewards from the
            first wrong step on.
        clusters: The cluster of each problem.
        scores: The rewards of all steps.
    """
    is_bounded = all(0 <= score <= 1 for score in scores)
    if not is_bounded or len(set(clusters)) < 2:
        return None
    return mean_difference(problem_margins, clusters).ci95


@dataclass(frozen=True, slots=True)
class BestOfN:
    """The accuracy of best-of-N, over the same problems at every N."""

    #: Accuracy by aggregate and N. The name ``pass`` means a perfect reward model.
    curves: Mapping[str, Mapping[int, float]]
    problems: int  #: Number of problems with solutions for the largest N.
    left_out: int  #: Number of problems with fewer solutions.


def best_of_n_curves(graded: Sequence[SolvedProblem], sizes: Sequence[int] = ()) -> BestOfN:
    """Return the accuracy of best-of-N, by aggregate and N.

    The accuracy is the exact expectation over all subsets of N samples of a problem. Among equal
    rewards, the earliest sample wins. The problems are the same at every N: those with solutions
    for the largest N. They have the same weight. The name ``pass`` means a perfect reward model, so
    its curve is pass@N.

    Args:
        graded: Graded solutions; one without step rewards is chosen last.
        sizes: Values of N; empty for the values of ``BEST_OF_N_SIZES`` that at least half of the
            problems have.

    Raises:
        InputError: if no problem has N solutions.
    """
    check_best_of(graded, sizes)
    groups: dict[str, list[SolvedProblem]] = defaultdict(list)
    for entry in graded:
        groups[entry.solution.problem_id].append(entry)
    sizes = sorted(set(sizes)) or _common_sizes(groups)
    measured_groups = [group for group in groups.values() if len(group) >= sizes[-1]]
    curves: dict[str, dict[int, float]] = {}
    for name in (*AGGREGATES, "pass"):
        accuracy_GS = np.array([_estimate_group(group, name, sizes) for group in measured_groups])
        curves[name] = dict(zip(sizes, accuracy_GS.mean(axis=0).tolist(), strict=True))
    n_measured = len(measured_groups)
    return BestOfN(curves=curves, problems=n_measured, left_out=len(groups) - n_measured)


def _common_sizes(groups: Mapping[str, Sequence[SolvedProblem]]) -> list[int]:
    """Return the values of ``BEST_OF_N_SIZES`` that at least half of the problems have."""
    return [
        size
        for size in BEST_OF_N_SIZES
        if 2 * sum(len(group) >= size for group in groups.values()) >= len(groups)
    ]


def check_best_of(entries: Sequence[SolvedProblem], sizes: Sequence[int]) -> None:
    """Check that problems have enough graded solutions for best-of-N.

    Args:
        entries: The solutions; they need no step rewards yet.
        sizes: Values of N.

    Raises:
        InputError: if no problem has N graded solutions.
    """
    counts = Counter(entry.solution.problem_id for entry in entries if _is_graded(entry))
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


def _is_graded(entry: SolvedProblem) -> bool:
    """Return whether a solution counts in ranking and best-of-N."""
    return entry.solution.outcome in COUNTED_OUTCOMES


def _estimate_group(
    group: Sequence[SolvedProblem], aggregate_name: str, sizes: Sequence[int]
) -> np.ndarray:
    """Return the accuracy of best-of-N on the solutions of a problem, by N.

    Args:
        group: The solutions.
        aggregate_name: An aggregate of step rewards; ``pass`` for a perfect reward model.
        sizes: Values of N.
    """
    is_correct = [entry.solution.outcome == "correct" for entry in group]
    rewards: Sequence[float | None] = is_correct
    if aggregate_name != "pass":
        rewards = [
            aggregate(steps, aggregate_name) if (steps := step_rewards(entry)) else None
            for entry in group
        ]
    reward_PM, correct_PM = np.array([rewards], dtype=float), np.array([is_correct])
    return np.concatenate(
        [expected_values(distribute_best_of_n(reward_PM, size), correct_PM) for size in sizes]
    )


def dataset_report(entries: Sequence[SolvedProblem], sizes: Sequence[int] = ()) -> dict[str, Any]:
    """Return all measurements of step rewards as plain JSON.

    Without graded solutions, ``ranking_auc`` and the fields of best-of-N are empty.

    Args:
        entries: Measurable solutions, most of which have step rewards.
        sizes: Values of N for best-of-N; empty for the default values.

    Raises:
        InputError: if ``sizes`` has a value, and no problem has so many graded solutions.
    """
    check_best_of(entries, sizes)
    scored = [entry for entry in entries if step_rewards(entry)]
    separation = step_separation(scored)
    rankings: Mapping[str, Mean] = {}
    best_of_n = BestOfN({}, 0, 0)
    graded = [entry for entry in entries if _is_graded(entry)]
    if scored and graded:
        rankings = ranking_aucs([entry for entry in graded if step_rewards(entry)])
        best_of_n = best_of_n_curves(graded, sizes)
    return {
        "solutions": len(scored),
        "problems": len({entry.solution.problem_id for entry in scored}),
        "ranking_auc": {name: asdict(ranking) for name, ranking in rankings.items()},
        "best_of": best_of_n.curves,
        "best_of_problems": best_of_n.problems,
        "best_of_left_out": best_of_n.left_out,
        "steps": None if separation is None else asdict(separation),
    }
