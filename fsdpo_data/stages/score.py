"""Scoring: a dataset's solutions get one reward per step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fsdpo_data.core.entities import GRADED_OUTCOMES
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.job_shard import UNSHARDED, JobShard
from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.row_files import scan_parquet
from fsdpo_data.core.statistics import ProblemAuc, RankingAuc, mean_auc, problem_aucs
from fsdpo_data.dataset.manifest_sections import RankingStats, RewardStats
from fsdpo_data.dataset.schema import replace_column
from fsdpo_data.dataset.stage import DatasetDraft, Stage, StageOptions
from fsdpo_data.engines.load import EngineSelection, resolve_prm
from fsdpo_data.engines.options import ScorerOptions, Shard
from fsdpo_data.engines.scorers import Scorer, ScorerInput
from fsdpo_data.engines.scorers.prm_formats import format_entry
from fsdpo_data.steps.rewards import aggregate_expr

#: Solutions scored at a time: enough to find many of like length, little enough to see progress.
SCORING_BATCH = 4096


@dataclass
class ScoreStage(Stage):
    """Writes ``step_rewards``.

    Attributes:
        prm: The process reward model, as resolved.
        engine: What runs it, and in which precision; part of the dataset's spec.
        asked: What is said of a published model's convention; nothing of our own kind.
        make_scorer: Called only if solutions are owed: loading a model is slow.
    """

    spec_key = "score"

    prm: ModelRef
    engine: Mapping[str, str]
    make_scorer: Callable[[], Scorer]
    format_entry: Mapping[str, Any] = field(default_factory=dict)
    _scorer: Scorer | None = None

    def spec(self) -> Mapping[str, Any]:
        """Return which model scores, and how it is run."""
        return {"prm": asdict(self.prm), "engine": dict(self.engine), **self.format_entry}

    def run_shard(self, draft: DatasetDraft, shard: JobShard) -> None:
        """Score some of the files of solutions; InputError if there are fewer files than shards."""
        files = len(draft.current_files("solutions"))
        if shard.count > files:
            raise InputError(
                f"{draft.parent_root} has {files} files of solutions, which shards share: expected "
                f"{files} shards at most.",
                field="ScoreOptions.shard",
                value=str(shard),
            )
        change = partial(self._add_rewards, draft)
        draft.rewrite_config("solutions", "score", change, advance=False, shard=shard)

    def run(self, draft: DatasetDraft) -> None:
        """Score every file of solutions; pairs made of other rewards are left out."""
        self.run_shard(draft, UNSHARDED)
        draft.drop_pairs()
        rewards = reward_statistics(draft.current_files("solutions"))
        draft.manifest.rewards = rewards
        draft.manifest.cost.prm_calls += rewards.scored
        self._scorer = None  # gives the memory back before whatever comes next

    def _add_rewards(self, draft: DatasetDraft, table: pa.Table) -> pa.Table:
        self._scorer = self._scorer or self.make_scorer()
        rewards: list[list[float] | None] = []
        columns = table.select(["problem_id", "prompt", "completions"])
        questions = questions_by_id(draft.current_files("problems"), table["problem_id"])
        for start in range(0, table.num_rows, SCORING_BATCH):
            rows = columns.slice(start, SCORING_BATCH).to_pylist()
            items = [
                ScorerInput(row["prompt"], row["completions"], questions[row["problem_id"]])
                for row in rows
            ]
            rewards += self._scorer.score(items)
            draft.progress.advance(len(rows))
        return replace_column(table, "step_rewards", rewards)


def questions_by_id(files: list[Path], problems: pa.ChunkedArray) -> dict[str, str]:
    """Return the questions of some problems by their ids."""
    wanted = pl.Series(problems.unique().to_pylist(), dtype=pl.String).implode()
    rows = scan_parquet(files).filter(pl.col("problem_id").is_in(wanted))
    return dict(rows.select("problem_id", "question").collect(engine="streaming").iter_rows())


def reward_statistics(files: list[Path]) -> RewardStats:
    """Describe the rewards in files of solutions; unscored ones are longer than the model reads.

    The ranking, by the mean and the min of the steps, is the chance that a correct solution stands
    above an incorrect one of the same problem.
    """
    scored = unscored = 0
    sums: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
    known: dict[str, list[ProblemAuc]] = {"mean": [], "min": []}
    for file in files:  # which holds all solutions of its problems
        rows = (
            scan_parquet([file])
            .select(
                "problem_id",
                "outcome",
                n_rewards=pl.col("step_rewards").list.len(),
                mean=aggregate_expr("step_rewards", "mean"),
                min=aggregate_expr("step_rewards", "min"),
            )
            .collect()
        )
        scored += rows["n_rewards"].count()
        unscored += rows["n_rewards"].null_count()
        graded = rows.filter((pl.col("n_rewards") > 0) & pl.col("outcome").is_in(GRADED_OUTCOMES))
        right = graded["outcome"] == "correct"
        problems, flags = graded["problem_id"].to_list(), right.to_list()
        for how, found in known.items():
            found += problem_aucs(problems, graded[how].to_list(), flags)
        for kind, found_sums in sums.items():
            of_kind = graded.filter(right if kind else ~right)["mean"]
            found_sums.append((float(of_kind.sum()), len(of_kind)))
    return RewardStats(
        scored=scored,
        unscored=unscored,
        mean_correct=_mean(sums[True]),
        mean_incorrect=_mean(sums[False]),
        ranking_auc={how: _ranking_stats(mean_auc(found)) for how, found in known.items()},
    )


def _mean(sums: Sequence[tuple[float, int]]) -> float | None:
    count = sum(each for _, each in sums)
    return round(math.fsum(total for total, _ in sums) / count, 4) if count else None


def _ranking_stats(found: RankingAuc) -> RankingStats:
    value = None if found.value is None else round(found.value, 4)
    interval = [round(bound, 4) for bound in found.ci95] if found.ci95 else None
    return RankingStats(value=value, problems=found.problems, ci95=interval)


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(StageOptions, ScorerOptions):
    """Give every step of every solution a reward.

    Attributes:
        prm: Process reward model: a directory or `org/name[@revision]`.
        policy: Instead: a policy, scored against `reference`.
        shard: Score one of N shares of the files; `fsdpo-data merge` puts the shards together.
    """

    prm: str | None = None
    policy: str | None = None
    shard: Shard = None

    def stage(self) -> ScoreStage:
        """Check the process reward model and the engine."""
        if (self.prm is None) == (self.policy is None) or (self.policy and not self.reference):
            raise self.field_error("prm", "expected it, or a `policy` with its `reference`.")
        return make_score_stage(str(self.prm or self.policy), self)


def make_score_stage(prm: str, options: ScorerOptions) -> ScoreStage:
    """Check the process reward model and the engine; the weights are loaded when needed.

    Raises:
        InputError: if ``prm`` is no process reward model.
        Unavailable: if the engine is not installed, or the model cannot be read.
    """
    weights = resolve_prm(prm, options)
    host = EngineSelection.select_for_scorer(options, weights)
    spec, asked = {"name": host.engine, "dtype": options.dtype}, format_entry(weights)
    return ScoreStage(weights.ref, spec, lambda: host.load("scorer", weights), asked)
