"""Monte-Carlo labels: how often the model gets the answer right, continuing from each step.

The unit that survives a stop is the beginning of a solution with its N continuations. Beginnings
that several samples share are continued once. A finished solution needs no continuation: its
outcome is its label, so the last step has counts of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.entities import GRADED_OUTCOMES, Solution
from fsdpo_data.core.errors import FsdpoError, InputError
from fsdpo_data.core.identity import ModelRef, file_sha256
from fsdpo_data.core.job_shard import JobShard
from fsdpo_data.core.lazy import pa, pl, pq
from fsdpo_data.core.options import Option
from fsdpo_data.core.row_files import scan_parquet
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.manifest_sections import RolloutStats
from fsdpo_data.dataset.schema import to_table
from fsdpo_data.dataset.stage import DatasetDraft, Stage
from fsdpo_data.engines.load import resolve_model
from fsdpo_data.engines.options import Shard
from fsdpo_data.engines.scorers.critiques import critique_sampling, get_critique
from fsdpo_data.models.resolve import ResolvedModel, resolve_served
from fsdpo_data.stages.continuations import (
    ContinuationGrader,
    ContinuationOptions,
    ContinuationSampler,
    Prefix,
    step_prefixes,
)
from fsdpo_data.stages.judge import JudgeStage

FOLDER = "rollouts"  #: Folder of the continuations inside the new dataset's directory.
_JUDGE_PANEL = "Judging"


@dataclass(frozen=True)
class LabelStage(Stage):
    """Writes ``rollouts``: counts (n, n_correct) for every step of every labelled solution."""

    spec_key = "label"

    continuer: ContinuationSampler  #: Who continues, and how; ``n`` is the paper's N.
    workers: int | None = None

    def spec(self) -> Mapping[str, Any]:
        """Return who continues, and how."""
        return self.continuer.spec()

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse a dataset of an older grader, or without labelled solutions of two steps."""
        get_grader(manifest.spec.grader)
        steps = pl.col("completions").list.len()
        solutions = scan_parquet(manifest.config_paths(source, "solutions"))
        worth = solutions.filter(pl.col("labels").is_not_null() & (steps > 1))
        if not worth.select(pl.len()).collect().item():
            raise InputError(
                f"{source} has no labelled solution of two steps or more: nothing can be continued."
                " Outcome labels are all it can have."
            )

    def run_shard(self, draft: DatasetDraft, shard: JobShard) -> None:
        """Continue some of the beginnings."""
        with self.continuer.run(
            draft, FOLDER, partial(_prefixes_to_continue, draft.current_files("solutions")), shard
        ):
            pass

    def run(self, draft: DatasetDraft) -> None:
        """Continue every beginning that is owed, then count and write."""
        wanted, manifest = (
            partial(_prefixes_to_continue, draft.current_files("solutions")),
            draft.manifest,
        )
        with self.continuer.run(draft, FOLDER, wanted) as run:
            with self.continuer.open_grader(draft, run, self.workers) as judged:
                draft.rewrite_config("solutions", "count", partial(add_rollouts, judged))
            before = manifest.cost.tokens
            manifest.judge = None
            manifest.rollouts = RolloutStats(
                **self.continuer.record_cost(run, manifest).to_dict(),
                **_agreement(draft.current_files("solutions")),
                sampling_tokens=before,
            )


def _agreement(files: list[Path]) -> dict[str, Any]:
    """Return the steps counted, and on how many the rounded estimate is not the outcome label."""
    solutions = scan_parquet(files).filter(pl.col("rollouts").is_not_null())
    steps = solutions.select("labels", "rollouts").explode("labels", "rollouts").drop_nulls()
    counts = pl.col("rollouts").struct
    share = counts.field("n_correct") / counts.field("n")
    found = steps.select(
        steps=pl.len(), mean=share.mean(), disagree=((share >= 0.5) != pl.col("labels")).sum()
    ).collect()
    row = found.row(0, named=True)
    return {**row, "mean": None if row["mean"] is None else round(row["mean"], 4)}


def _prefixes_to_continue(files: list[Path]) -> Iterator[Prefix]:
    """Yield what is continued for the labelled solutions in files."""
    columns = ["prompt", "completions", "labels"]
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches(2048, columns=columns):
            for row in batch.to_pylist():
                if row["labels"] is not None:
                    yield from step_prefixes(row["prompt"], row["completions"])


def add_rollouts(judged: ContinuationGrader, table: pa.Table) -> pa.Table:
    """Return a file's solutions with the counts of their steps."""
    solutions = [Solution(**row) for row in table.to_pylist()]
    asked = {
        key: each
        for each in solutions
        if each.labels is not None
        for key, _ in step_prefixes(each.prompt, each.completions)
    }
    counts = {}
    for key, tried in zip(asked, judged(list(asked.items())), strict=True):
        outcomes = [outcome for _, outcome in tried if outcome in GRADED_OUTCOMES]
        counts[key] = {"n": len(outcomes), "n_correct": outcomes.count("correct")}
    return to_table("solutions", (_add_counts(each, counts) for each in solutions))


def _add_counts(solution: Solution, counts: Mapping[str, Mapping[str, int]]) -> Solution:
    """Return a solution with the counts of its steps, if every step has some."""
    if solution.labels is None:
        return solution
    steps = [counts[key] for key, _ in step_prefixes(solution.prompt, solution.completions)]
    # Where no continuation of some step could be judged, those of the others would mislead.
    if not all(each["n"] for each in steps):
        return solution
    last = {"n": 1, "n_correct": int(solution.outcome == "correct")}
    return replace(solution, rollouts=[*steps, last] if solution.completions else [])


def format_rollout_cost(rollouts: RolloutStats) -> str:
    """Return what the labels cost, for a person."""
    tokens, sampled, took = rollouts.tokens, rollouts.sampling_tokens, "tokens unknown"
    if isinstance(tokens, int):
        took = f"{tokens:,} tokens"
        if isinstance(sampled, int):
            took += f", {tokens / max(1, sampled):.1f} times what sampling the solutions took"
    return (
        f"N={rollouts.n}: {rollouts.continuations:,} continuations of "
        f"{rollouts.prefixes:,} beginnings, {took}; the outcome "
        "labels of N=1 took no more"
    )


@dataclass(frozen=True, kw_only=True)
class LabelOptions(ContinuationOptions):
    """Label steps: continue from each of them and count the right answers, or ask a judge.

    The outcome labels (N=1) are there already and cost nothing. Monte-Carlo labels take N
    continuations of every step of every solution. A judge reads each solution and names its first
    wrong step; where you do not say how it is sampled, its form does.

    Attributes:
        rollouts: Continuations per step (the paper's N > 1).
        judge: Instead: a model that names the first wrong step.
        judge_format: What it is asked and how it is read: `processbench`, `thinkprm`, or a TOML file
            of your own. The boxed index is read strictly; what cannot be read is counted.
        votes: Critiques of each solution; labels are the shares of them. The majority decides,
            a tie goes to the vote that came first.
        consensus: Keep labels, now of right or wrong, only where the majority and the Monte-Carlo
            labels of the dataset name the same first wrong step.
        shard: Do one of N shares of the work; `fsdpo-data merge` puts the shards together.
    """

    rollouts: Annotated[int | None, Option(min=1)] = None
    judge: str | None = None
    judge_format: Annotated[str, Option(panel=_JUDGE_PANEL)] = "processbench"
    votes: Annotated[int, Option(min=1, panel=_JUDGE_PANEL)] = 1
    consensus: Annotated[bool, Option(panel=_JUDGE_PANEL)] = False
    shard: Shard = None

    def __post_init__(self) -> None:
        super().__post_init__()
        judged = self.judge is not None
        one = (
            "expected at least 2. With one, the label is the outcome, which `fsdpo-data build` "
            "has written already."
        )
        for field, wrong, message in (
            ("rollouts", judged == (self.rollouts is not None), "expected it, or a `judge`."),
            ("rollouts", self.rollouts == 1, one),
            ("model", judged and self.model is not None, "the `judge` is the model."),
            ("votes", not judged and self.votes > 1, "they are those of a `judge`."),
            ("consensus", not judged and self.consensus, "it is that of a `judge`."),
        ):
            if wrong:
                raise self.field_error(field, message)

    def stage(self) -> LabelStage | JudgeStage:
        """Resolve who continues, or judges."""
        if self.judge is not None:
            return self._judge_stage(self.judge)
        assert self.rollouts is not None
        return LabelStage(self.continuation_sampler(self.rollouts), self.workers)

    def _judge_stage(self, judge: str) -> JudgeStage:
        form = get_critique(self.judge_format)
        if form.reply_prefix and self.api == "chat":
            raise self.field_error("api", f"{form.name} begins the reply itself. Use completions.")
        try:
            model = self._resolve_judge(judge, form.template)
        except FsdpoError as error:
            raise error.for_field("judge") from None
        how = replace(
            critique_sampling(form, model.template, self.votes), **self.sampling_overrides
        )
        return JudgeStage(
            self.sampler_for(model, how, "judge"), form, model.template, self._consensus_spec()
        )

    def _resolve_judge(self, judge: str, template: str) -> ResolvedModel:
        if self.replay is None or self.api != "chat":
            return resolve_model(judge, self, template)
        # Recorded chats are known by what was said to whoever answered.
        recorded = ModelRef(judge, f"sha256:{file_sha256(Path(self.replay))}")
        return replace(resolve_served(judge, template, chat=True), ref=recorded)

    def _consensus_spec(self) -> Mapping[str, Any] | None:
        """Return what made the Monte-Carlo labels that are to be agreed with, if any are."""
        if not self.consensus:
            return None
        manifest = read_manifest(Path(self.data))
        if manifest.rollouts is None or manifest.spec.label is None:
            told = f"{self.data} has no Monte-Carlo labels. Make them first: `rollouts=8`."
            raise self.field_error("consensus", told)
        return manifest.spec.label.to_dict()
