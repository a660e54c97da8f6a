"""The graded solutions of a benchmark as arrays, from which all numbers are computed.

Array suffixes: ``P`` problems of a benchmark, ``M`` solutions of a problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from fsdpo_bench.decoders.answer_classes import AnswerClasses, answer_classes, voting_answers
from fsdpo_data.core.entities import (
    JUDGE_RULE_PREFIX,
    UNCOUNTED_OUTCOMES,
    UNDECIDED_OUTCOMES,
    Problem,
)
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import np, pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.problem_rows import read_problems
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.dataset.validate import check_files, explain_damage
from fsdpo_data.engines.scorers.prm_formats import PRM_FORMATS
from fsdpo_data.problems.benchmark_rows import BenchmarkRow, benchmark_rows
from fsdpo_data.steps.rewards import (
    AGGREGATES,
    aggregate_expr,
    default_aggregate,
)


@dataclass(frozen=True, slots=True)
class BenchmarkProblem:
    """A problem at one of its rows in a benchmark."""

    problem_id: str  #: Id of the problem.
    problem: Problem  #: The problem.
    benchmark_row: BenchmarkRow  #: The row.

    @property
    def cluster(self) -> str:
        """The base problem; without one, the problem, which can have several rows.

        Two benchmarks may number their base problems alike, so the name of the benchmark is a part.
        """
        base = self.benchmark_row.cluster
        return f"{self.benchmark_row.name}: {base}" if base else self.problem_id


def shared_clusters(problems: Sequence[BenchmarkProblem]) -> list[str] | None:
    """Return the cluster of each problem; None if no problem has a base or a second row."""
    clusters = [benchmark_problem.cluster for benchmark_problem in problems]
    has_bases = any(benchmark_problem.benchmark_row.cluster for benchmark_problem in problems)
    return clusters if has_bases or len(set(clusters)) < len(clusters) else None


@dataclass(frozen=True, slots=True)
class Rewards:
    """The step rewards of one reward model for the samples of a benchmark."""

    model: str  #: Name of the reward model.
    root: Path  #: The dataset with the rewards.
    are_probabilities: bool  #: Whether the step rewards are probabilities.
    default_aggregate: str  #: Aggregate of decoders, if no other one is named.
    by_aggregate: Mapping[str, np.ndarray]  #: Rewards of shape (P, M); NaN without rewards.
    steps: Sequence[Sequence[Sequence[float] | None]]  #: Step rewards of each sample.

    @property
    def unscored(self) -> int:
        """Number of samples without a reward."""
        return int(np.isnan(self.by_aggregate[self.default_aggregate]).sum())

    @property
    def has_scored_samples(self) -> bool:
        """Whether a sample of the benchmark has a reward."""
        return self.unscored < self.by_aggregate[self.default_aggregate].size


@dataclass(frozen=True)
class Samples:
    """The solutions of a benchmark in one dataset: P problems with M solutions each."""

    root: Path  #: The dataset.
    problems: Sequence[BenchmarkProblem]  #: The P problems; one with two rows occurs twice.
    outcome_PM: np.ndarray  #: Outcome of each solution.
    #: Whether each solution is correct without tolerance; None if no problem has a tolerance.
    exactly_correct_PM: np.ndarray | None
    is_judged_PM: np.ndarray  #: Whether a judge decided the outcome.
    answer_PM: np.ndarray  #: Extracted answer of each solution; None without one.
    classes_P: Sequence[AnswerClasses]  #: The answers with which the solutions vote.
    tokens_PM: np.ndarray  #: Tokens of each solution and of its search; NaN if unknown.
    prm_calls_PM: np.ndarray  #: Calls of a reward model in the search.
    rewards: Mapping[str, Rewards]  #: Rewards by reward model; empty without step rewards.
    #: Log-likelihood of each solution under the policy; None if it was not computed.
    log_likelihood_PM: np.ndarray | None = None

    @property
    def n_samples(self) -> int:
        """Number of solutions per problem."""
        return int(self.outcome_PM.shape[1])

    @cached_property
    def is_correct_PM(self) -> np.ndarray:
        """Whether each solution is correct; undecided answers and timeouts are wrong."""
        return np.isin(self.outcome_PM, ("correct",))

    @cached_property
    def is_unknown_PM(self) -> np.ndarray:
        """Whether the grader left the solution undecided or ran out of time."""
        return np.isin(self.outcome_PM, UNDECIDED_OUTCOMES)

    @cached_property
    def counts_P(self) -> np.ndarray:
        """Whether each problem counts."""
        counts_P = np.ones(len(self.problems), dtype=bool)
        counts_P[np.isin(self.outcome_PM, UNCOUNTED_OUTCOMES).any(axis=1)] = False
        return counts_P

    @cached_property
    def counted_clusters(self) -> list[str]:
        """Clusters of the problems that count."""
        return [self.problems[index].cluster for index in np.flatnonzero(self.counts_P)]

    def clusters(self, selected_P: np.ndarray) -> list[str] | None:
        """Return the cluster of each selected problem, by :func:`shared_clusters`."""
        return shared_clusters([self.problems[index] for index in np.flatnonzero(selected_P)])


class SolutionTable(NamedTuple):
    """The solutions of a dataset, sorted by problem and sample index."""

    root: Path  #: The dataset.
    manifest: Manifest  #: Its manifest.
    frame: pl.DataFrame  #: The columns that numbers depend on.
    rows_by_problem: Mapping[str, range]  #: The rows of each problem.


def read_solution_table(root: Path) -> SolutionTable:
    """Read the columns of a sealed dataset that numbers depend on.

    Raises:
        SchemaError: if the dataset is not sealed, or its files were changed.
    """
    manifest = read_manifest(root)
    check_files(root, manifest.config_files("solutions"))
    with explain_damage(root):
        rows = scan_rows("solutions", manifest.config_paths(root, "solutions")).select(
            "solution_id",
            "problem_id",
            "sample_index",
            "outcome",
            "answer",
            "verdict_by",
            "exactly_correct",
            "step_rewards",
            # A missing search costs nothing; unknown tokens stay unknown.
            tokens=pl.col("n_tokens")
            + pl.when(pl.col("search_cost").is_null())
            .then(0)
            .otherwise(pl.col("search_cost").struct.field("discarded_tokens")),
            search_prm_calls=pl.col("search_cost").struct.field("prm_calls").fill_null(0),
        )
        frame = collect_rows(rows).sort("problem_id", "sample_index")
    counts = frame.group_by("problem_id", maintain_order=True).len()
    rows_by_problem = {}
    start = 0
    for problem_id, count in counts.iter_rows():
        rows_by_problem[problem_id] = range(start, start + count)
        start += count
    return SolutionTable(root, manifest, frame, rows_by_problem)


def read_benchmark_problems(table: SolutionTable) -> dict[str, list[BenchmarkProblem]]:
    """Return the problems of a dataset by benchmark, each at all of its rows, sorted by row.

    A dataset without benchmarks has one benchmark per source, in the order of its problems.
    """
    root, manifest = table.root, table.manifest
    check_files(root, manifest.config_files("problems"))
    with explain_damage(root):
        problems = read_problems(manifest.config_paths(root, "problems"))
    by_benchmark: dict[str, list[BenchmarkProblem]] = {}
    for index, (problem_id, problem) in enumerate(problems.items()):
        default_rows = [BenchmarkRow(problem.source, index)]
        for entry in benchmark_rows(problem.metadata) or default_rows:
            benchmark_problem = BenchmarkProblem(problem_id, problem, entry)
            by_benchmark.setdefault(entry.name, []).append(benchmark_problem)
    return {
        name: sorted(problems, key=lambda benchmark_problem: benchmark_problem.benchmark_row.row)
        for name, problems in by_benchmark.items()
    }


def make_samples(
    table: SolutionTable,
    problems: Sequence[BenchmarkProblem],
    scored_tables: Mapping[str, SolutionTable],
) -> Samples:
    """Return the solutions of problems as arrays.

    Args:
        table: The solutions.
        problems: Problems with solutions. If their numbers of solutions differ, the first ones of
            each count, as many as all problems have.
        scored_tables: The same solutions with the step rewards of each reward model, by its name.
    """
    problem_rows = [
        table.rows_by_problem[benchmark_problem.problem_id] for benchmark_problem in problems
    ]
    n_samples = min(map(len, problem_rows))
    row_PM = np.array([rows[:n_samples] for rows in problem_rows])

    # The other benchmarks of the dataset need no arrays.
    frame = table.frame[row_PM.ravel()]

    def column(name: str) -> np.ndarray:
        values_PM: np.ndarray = frame[name].to_numpy().reshape(row_PM.shape)
        return values_PM

    exactly_correct_PM = None
    if frame["exactly_correct"].is_not_null().any():
        # A problem without a tolerance has the same verdict twice.
        exactly_correct = frame["exactly_correct"].fill_null(frame["outcome"] == "correct")
        exactly_correct_PM = exactly_correct.to_numpy().reshape(row_PM.shape)
    is_judged = frame["verdict_by"].str.starts_with(JUDGE_RULE_PREFIX)
    tokens = frame["tokens"].cast(pl.Float64).fill_null(float("nan"))
    return Samples(
        root=table.root,
        problems=problems,
        outcome_PM=column("outcome").astype(object),
        exactly_correct_PM=exactly_correct_PM,
        is_judged_PM=is_judged.to_numpy().reshape(row_PM.shape),
        answer_PM=column("answer").astype(object),
        classes_P=_answer_classes(table, row_PM),
        tokens_PM=tokens.to_numpy().reshape(row_PM.shape),
        prm_calls_PM=column("search_prm_calls"),
        rewards={
            name: _make_rewards(name, scored_table, row_PM)
            for name, scored_table in scored_tables.items()
        },
    )


def _answer_classes(table: SolutionTable, row_PM: np.ndarray) -> list[AnswerClasses]:
    """Return the classes of the answers of each problem."""
    answers = table.frame["answer"]
    verdicts = table.frame["verdict_by"]
    classes: dict[int, AnswerClasses] = {}  # by first row, because a problem can occur twice
    for row_M in row_PM:
        first_row = int(row_M[0])
        if first_row not in classes:
            texts = voting_answers(
                answers.slice(first_row, len(row_M)).to_list(),
                verdicts.slice(first_row, len(row_M)).to_list(),
            )
            classes[first_row] = answer_classes(texts)
    return [classes[int(row_M[0])] for row_M in row_PM]


def _make_rewards(name: str, table: SolutionTable, row_PM: np.ndarray) -> Rewards:
    """Return the rewards of a dataset whose rows are those of the samples."""
    step_rewards = table.frame["step_rewards"][row_PM.ravel()]
    rewards = step_rewards.to_frame().select(
        aggregate_expr("step_rewards", aggregate).fill_null(float("nan")).alias(aggregate)
        for aggregate in AGGREGATES
    )
    step_lists = iter(step_rewards.to_list())
    return Rewards(
        model=name,
        root=table.root,
        are_probabilities=table.manifest.rewards_are_probabilities,
        default_aggregate=manifest_aggregate(table.manifest),
        by_aggregate={
            aggregate: rewards[aggregate].to_numpy().reshape(row_PM.shape)
            for aggregate in AGGREGATES
        },
        steps=[[next(step_lists) for _ in row_M] for row_M in row_PM],
    )


def manifest_aggregate(manifest: Manifest) -> str:
    """Return the default aggregate of decoders that choose by the rewards of a dataset.

    A PRM format from a file of the user can name another one, which the manifest does not contain.
    """
    settings = manifest.score_settings
    prm_format = settings.prm_format if settings is not None else None
    format_aggregate = None
    if prm_format is not None and prm_format.name in PRM_FORMATS:
        format_aggregate = PRM_FORMATS[prm_format.name].aggregate
    return default_aggregate(
        is_outcome_model=manifest.has_outcome_rewards, format_aggregate=format_aggregate
    )


def check_equal_verdicts(first: SolutionTable, other: SolutionTable) -> None:
    """Check that two datasets with the same solutions have the same verdicts.

    Raises:
        InputError: if answers or outcomes differ.
    """
    columns = ("solution_id", "outcome", "answer")
    if not first.frame.select(columns).equals(other.frame.select(columns)):
        raise InputError(
            f"{other.root} has other verdicts than {first.root} on the same solutions. Grade both "
            "with one grader.",
            field="data",
        )
