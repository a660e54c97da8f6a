"""Statistics of a dataset, computed from its columns when something shows them.

The manifest has the facts that rows cannot tell. Everything else follows from the rows, so it is
right for any choice of rows. `inspect`, the card, the page and `list` show these statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fsdpo_data.core.entities import (
    COUNTED_OUTCOMES,
    GRADED_OUTCOMES,
    JUDGE_RULE_PREFIX,
    OUTCOMES,
    UNDECIDED,
)
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.core.statistics import Mean, mean_rate, problem_aucs, wilson_interval
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.dataset.stage_records import PAIR_STAGE, PairRecord
from fsdpo_data.pairs.checks import ImportedPairSettings
from fsdpo_data.pairs.first_error import StepPairSettings
from fsdpo_data.pairs.statistics import (
    PairStatistics,
    imported_pair_statistics,
    pair_statistics,
    step_pair_statistics,
)
from fsdpo_data.steps.first_error import RIGHT_STEP_LABEL
from fsdpo_data.steps.rewards import (
    AGGREGATES,
    DEFAULT_GAMMA,
    OUTCOME_AGGREGATE,
    aggregate_expr,
    default_pair_aggregate,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionStatistics:
    """Statistics of solutions that need only their narrow columns."""

    outcomes: Mapping[str, int]  #: Solutions by outcome; outcomes without a solution are absent.
    #: Steps by the value of ``labels``: ``positive``, ``negative`` and ``unlabelled``, as far as
    #: there are any; ``steps`` is the total.
    labels: Mapping[str, int]
    max_samples: int  #: Solutions of the problem that has most of them.
    accuracy: Mean  #: Accuracy, in which undecided solutions are wrong; problems are the clusters.
    pass_at_k: Mean  #: Fraction of the problems with a counted solution that have a correct one.
    solved_problems: int  #: Problems with a correct solution.
    mixed_problems: int  #: Problems with correct and incorrect solutions.
    truncated: int  #: Solutions that reached ``max_tokens``.
    stopped_thoughts: int  #: Other solutions without an end, which stopped in their thinking.
    #: Solutions that contain thinking, by ``closed`` and ``unclosed``; empty without thinking.
    thinking: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRewardStatistics:
    """Statistics of step rewards."""

    scored: int  #: Solutions with rewards.
    unscored: int  #: Solutions without: empty ones, and those that the model could not read.
    #: By aggregate, the mean over problems of the AUC of correct over incorrect solutions.
    ranking_auc: Mapping[str, Mean]

    @property
    def main_ranking(self) -> tuple[str, Mean]:
        """The aggregate that suits the reward model, and its ranking AUC."""
        name = default_pair_aggregate(is_outcome_model=OUTCOME_AGGREGATE in self.ranking_auc)
        return name, self.ranking_auc[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelStatistics:
    """Statistics of step labels from continuations, votes or a search."""

    steps: int  #: Steps with a label.
    mean: float | None  #: Mean label.
    disagreements: int  #: Steps whose rounded label differs from the outcome label.


@dataclass(frozen=True)
class DatasetStatistics:
    """The statistics of a dataset; each part is computed when it is first read."""

    root: Path  #: Directory of the dataset.
    manifest: Manifest  #: Its manifest.
    gamma: float = field(default=DEFAULT_GAMMA, kw_only=True)  #: γ of the step weights of pairs.

    def files(self, config: str) -> list[Path]:
        """Return the files of a config."""
        return self.manifest.config_paths(self.root, config)

    @cached_property
    def solutions(self) -> SolutionStatistics:
        """Statistics of the solutions."""
        return solution_statistics(self.scan_solutions())

    @cached_property
    def distinct_solutions(self) -> int:
        """Number of distinct texts, counted per problem. Reads all texts."""
        text = pl.col("completions").list.join("").hash()
        rows = self.scan_solutions().select(pl.struct("problem_id", text=text).n_unique())
        return int(collect_rows(rows, streaming=True).item())

    @cached_property
    def rewards(self) -> StepRewardStatistics | None:
        """Statistics of the step rewards; None if no stage wrote any."""
        if not self.manifest.is_written("step_rewards"):
            return None
        aggregates = ["mean", "min"]
        if self.manifest.has_outcome_rewards:
            aggregates.append(OUTCOME_AGGREGATE)
        return reward_statistics(self.files("solutions"), aggregates)

    @cached_property
    def step_labels(self) -> LabelStatistics:
        """Statistics of the labels in ``rollouts``, or of the labels of a search."""
        return label_statistics(
            self.scan_solutions(), is_searched=self.manifest.labels_are_searched
        )

    @cached_property
    def imported_steps(self) -> tuple[int, int]:
        """Numbers of right and of wrong steps in ``imported_labels``."""
        steps = self.scan_solutions().select(pl.col("imported_labels").explode().drop_nulls())
        is_right = pl.col("imported_labels") >= RIGHT_STEP_LABEL
        counts = collect_rows(steps.select(right=is_right.sum(), wrong=(~is_right).sum()))
        right, wrong = counts.row(0)
        return right, wrong

    @cached_property
    def judge_decisions(self) -> Mapping[str, int]:
        """Solutions whose answers a judge decided, by outcome; empty without any."""
        outcomes = self.scan_solutions().filter(_is_decided_by_judge()).group_by("outcome").len()
        return dict(collect_rows(outcomes.sort("outcome")).iter_rows())

    @cached_property
    def accuracy_without_judge(self) -> Mean:
        """Accuracy if the answers that a judge decided were undecided."""
        outcome = pl.when(_is_decided_by_judge()).then(pl.lit(UNDECIDED)).otherwise("outcome")
        return solution_statistics(self.scan_solutions().with_columns(outcome=outcome)).accuracy

    @cached_property
    def pairs(self) -> PairStatistics | None:
        """Statistics of the pairs; None without pairs, and for those of a plug-in."""
        record = self.manifest.find(PAIR_STAGE, PairRecord)
        pairs = self.files("pairs")
        if record is None or not pairs:
            return None
        settings = record.options
        if isinstance(settings, StepPairSettings):
            return step_pair_statistics(pairs, self.files("solutions"), settings)
        if isinstance(settings, ImportedPairSettings):
            return imported_pair_statistics(pairs)
        # The plug-in that defines the aggregate may be absent.
        aggregate = settings.aggregate if settings.aggregate in AGGREGATES else None
        return pair_statistics(
            pairs,
            self.files("solutions"),
            aggregate,
            self.gamma,
            allow_unclosed=settings.allow_unclosed,
        )

    def scan_solutions(self) -> pl.LazyFrame:
        """Return the rows of ``solutions``."""
        return scan_rows("solutions", self.files("solutions"))


def _is_decided_by_judge() -> pl.Expr:
    """Return whether a judge decided the answer of a solution."""
    return pl.col("verdict_by").str.starts_with(JUDGE_RULE_PREFIX)


def solution_statistics(solutions: pl.LazyFrame) -> SolutionStatistics:
    """Compute the statistics of solutions in one pass over their narrow columns.

    Args:
        solutions: Rows of ``solutions``.
    """
    n_steps = pl.col("completions").list.len()
    labels = pl.col("labels")
    ends = pl.col("finish_reason") == "stop"
    closed = pl.col("thinking_closed")
    by_problem = collect_rows(
        solutions.select(
            "problem_id",
            "outcome",
            steps=n_steps,
            positive=labels.list.sum(),
            negative=n_steps - labels.list.sum(),
            truncated=~ends,
            stopped=ends & closed.eq(False).fill_null(value=False),
            closed=closed.fill_null(value=False),
            unclosed=closed.eq(False).fill_null(value=False),
        )
        .group_by("problem_id")
        .agg(
            *((pl.col("outcome") == outcome).sum().alias(outcome) for outcome in OUTCOMES),
            pl.col("steps", "positive", "negative", "truncated", "stopped").sum(),
            pl.col("closed", "unclosed").sum(),
            samples=pl.len(),
        )
        .with_columns(
            graded=pl.sum_horizontal(GRADED_OUTCOMES), n_counted=pl.sum_horizontal(COUNTED_OUTCOMES)
        ),
        streaming=True,
    )
    totals = by_problem.select(pl.all().exclude("problem_id").sum()).row(0, named=True)
    problems = by_problem.filter(pl.col("n_counted") > 0).sort("n_counted", "correct")
    is_solved = (problems["correct"] > 0).to_list()
    is_mixed = (problems["correct"] > 0) & (problems["correct"] < problems["graded"])
    steps = {name: totals[name] for name in ("negative", "positive")}
    steps["unlabelled"] = totals["steps"] - sum(steps.values())
    thinking = {name: totals[name] for name in ("closed", "unclosed")}
    return SolutionStatistics(
        outcomes={name: totals[name] for name in sorted(OUTCOMES) if totals[name]},
        labels={
            "steps": totals["steps"],
            **{name: count for name, count in steps.items() if count},
        },
        max_samples=by_problem["samples"].max() or 0,  # type: ignore[arg-type]
        accuracy=clustered_accuracy(problems["correct"].to_list(), problems["n_counted"].to_list()),
        pass_at_k=mean_rate(is_solved).round(6),
        solved_problems=sum(is_solved),
        mixed_problems=int(is_mixed.sum()),
        truncated=totals["truncated"],
        stopped_thoughts=totals["stopped"],
        thinking=thinking if any(thinking.values()) else {},
    )


def clustered_accuracy(n_correct: Sequence[int], n_counted: Sequence[int]) -> Mean:
    """Return the accuracy over :data:`COUNTED_OUTCOMES`, with the problems as clusters.

    Args:
        n_correct: Number of correct solutions of each problem with a counted one.
        n_counted: Number of counted solutions of the same problems.
    """
    if not n_counted:
        return Mean(value=None, n=0, ci95=None)
    mean = Mean(
        value=sum(n_correct) / sum(n_counted),
        n=sum(n_counted),
        # The samples of one problem are not independent, so the interval is over problems.
        ci95=wilson_interval(n_correct, n_counted),
        clusters=len(n_counted),
    )
    return mean.round(6)


def label_statistics(solutions: pl.LazyFrame, *, is_searched: bool) -> LabelStatistics:
    """Return the number of labelled steps, their mean label, and disagreements with outcomes.

    Args:
        solutions: Rows of ``solutions``.
        is_searched: Whether ``labels`` has the result of a search for the first error. Otherwise
            the label of a step is its fraction of correct continuations, rounded to compare it
            with the outcome label.
    """
    has_labels = pl.col("rollouts").is_not_null() & pl.col("labels").is_not_null()
    solutions = solutions.filter(has_labels)
    if is_searched:
        is_correct = pl.col("outcome") == "correct"
        steps = solutions.select("labels", is_correct=is_correct).explode("labels").drop_nulls()
        label = pl.col("labels")
        disagrees = label != pl.col("is_correct")
    else:
        steps = solutions.select("labels", "rollouts").explode("labels", "rollouts").drop_nulls()
        counts = pl.col("rollouts").struct
        label = counts.field("n_correct") / counts.field("n")
        disagrees = (label >= RIGHT_STEP_LABEL) != pl.col("labels")
    stats = steps.select(steps=pl.len(), mean=label.mean(), disagreements=disagrees.sum())
    row = collect_rows(stats).row(0, named=True)
    mean = None if row["mean"] is None else round(row["mean"], 4)
    return LabelStatistics(steps=row["steps"], mean=mean, disagreements=row["disagreements"])


def reward_statistics(files: Sequence[Path], aggregates: Sequence[str]) -> StepRewardStatistics:
    """Return statistics of the rewards in files of solutions.

    Args:
        files: The files of solutions. A file has all solutions of its problems.
        aggregates: Aggregates of the step rewards for the ranking AUC.
    """
    scored = 0
    unscored = 0
    aucs: dict[str, list[float]] = {aggregate: [] for aggregate in aggregates}
    for file in files:
        rows = _read_rewards(file, aggregates)
        rewarded = rows.filter(pl.col("n_rewards") > 0)
        scored += rewarded.height
        unscored += rows.height - rewarded.height
        graded = rewarded.filter(pl.col("outcome").is_in(COUNTED_OUTCOMES))
        is_correct = (graded["outcome"] == "correct").to_list()
        problem_ids = graded["problem_id"].to_list()
        for aggregate, file_aucs in aucs.items():
            rewards = graded[aggregate].to_list()
            file_aucs += problem_aucs(problem_ids, rewards, is_correct).values()
    return StepRewardStatistics(
        scored=scored,
        unscored=unscored,
        ranking_auc={
            aggregate: mean_rate(all_aucs).round(4) for aggregate, all_aucs in aucs.items()
        },
    )


def _read_rewards(file: Path, aggregates: Sequence[str]) -> pl.DataFrame:
    """Return the aggregated rewards of the solutions in a file."""
    rows = scan_rows("solutions", [file]).select(
        "problem_id",
        "outcome",
        *(aggregate_expr("step_rewards", name).alias(name) for name in aggregates),
        n_rewards=pl.col("step_rewards").list.len(),
    )
    return collect_rows(rows)
