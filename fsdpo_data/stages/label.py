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
from typing import Any

from fsdpo_data.answers import Grader
from fsdpo_data.answers.pool import pooled
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.job_shard import JobShard
from fsdpo_data.core.lazy import pa, pl, pq
from fsdpo_data.core.nouns import GRADED, Solution
from fsdpo_data.core.rows import scan
from fsdpo_data.dataset.derive import Draft, Stage
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.parts import Rollouts
from fsdpo_data.dataset.run import RunDir
from fsdpo_data.dataset.schema import to_table
from fsdpo_data.engines.options import Shard
from fsdpo_data.stages.continuations import (
    Beginning,
    ContinueOptions,
    Continuer,
    beginnings,
    judged,
)
from fsdpo_data.stages.grade import WHOLE, gold_answers

FOLDER = "rollouts"  #: Folder of the continuations inside the new dataset's directory.


@dataclass(frozen=True)
class LabelStage(Stage):
    """Writes ``rollouts``: counts (n, n_correct) for every step of every labelled solution."""

    part = "label"

    continuer: Continuer  #: Who continues, and how; ``n`` is the paper's N.
    workers: int | None = None

    def spec(self) -> Mapping[str, Any]:
        """Return who continues, and how."""
        return self.continuer.spec()

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse a dataset of an older grader, or without labelled solutions of two steps."""
        get_grader(manifest.spec.grader)
        steps = pl.col("completions").list.len()
        solutions = scan(manifest.paths(source, "solutions"))
        worth = solutions.filter(pl.col("labels").is_not_null() & (steps > 1))
        if not worth.select(pl.len()).collect().item():
            raise InputError(
                f"{source} has no labelled solution of two steps or more: nothing can be continued."
                " Outcome labels are all it can have."
            )

    def run_shard(self, draft: Draft, shard: JobShard) -> None:
        """Continue some of the beginnings."""
        with self.continuer.run(draft, FOLDER, partial(_wanted, draft.files("solutions")), shard):
            pass

    def run(self, draft: Draft) -> None:
        """Continue every beginning that is owed, then count and write."""
        golds = gold_answers(draft.files("problems"))
        wanted = partial(_wanted, draft.files("solutions"))
        manifest = draft.manifest
        make = partial(get_grader, manifest.spec.grader)
        with self.continuer.run(draft, FOLDER, wanted) as run:
            whole = manifest.spec.thinking == WHOLE
            count = len(run.spans) * self.continuer.sampling.n
            with pooled(make, count, self.workers) as grader:
                draft.rewrite(
                    "solutions", "count", partial(with_rollouts, run, golds, grader, whole)
                )
            before = manifest.cost.tokens
            manifest.rollouts = Rollouts(
                **self.continuer.bill(run, manifest).plain(),
                **_agreement(draft.files("solutions")),
                tokens_of_outcomes=before,
            )


def _agreement(files: list[Path]) -> dict[str, Any]:
    """Return the steps counted, and on how many the rounded estimate is not the outcome label."""
    solutions = scan(files).filter(pl.col("rollouts").is_not_null())
    steps = solutions.select("labels", "rollouts").explode("labels", "rollouts").drop_nulls()
    counts = pl.col("rollouts").struct
    share = counts.field("n_correct") / counts.field("n")
    found = steps.select(
        steps=pl.len(),
        mean=share.mean(),
        disagree=((share >= 0.5) != pl.col("labels")).sum(),
    ).collect()
    row = found.row(0, named=True)
    return {**row, "mean": None if row["mean"] is None else round(row["mean"], 4)}


def _wanted(files: list[Path]) -> Iterator[Beginning]:
    """Yield what is continued for the labelled solutions in files."""
    columns = ["prompt", "completions", "labels"]
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches(2048, columns=columns):
            for row in batch.to_pylist():
                if row["labels"] is not None:
                    yield from beginnings(row["prompt"], row["completions"])


def with_rollouts(
    run: RunDir, golds: Mapping[str, str], grader: Grader, whole: bool, table: pa.Table
) -> pa.Table:
    """Return a file's solutions with the counts of their steps."""
    solutions = [Solution(**row) for row in table.to_pylist()]
    asked = {
        key: each
        for each in solutions
        if each.labels is not None
        for key, _ in beginnings(each.prompt, each.completions)
    }
    counts = {}
    found = judged(run, list(asked.items()), golds, grader, whole=whole)
    for key, tried in zip(asked, found, strict=True):
        outcomes = [outcome for _, outcome in tried if outcome in GRADED]
        counts[key] = {"n": len(outcomes), "n_correct": outcomes.count("correct")}
    return to_table("solutions", (_counted(each, counts) for each in solutions))


def _counted(solution: Solution, counts: Mapping[str, Mapping[str, int]]) -> Solution:
    """Return a solution with the counts of its steps, if every step has some."""
    if solution.labels is None:
        return solution
    steps = [counts[key] for key, _ in beginnings(solution.prompt, solution.completions)]
    # Where no continuation of some step could be judged, those of the others would mislead.
    if not all(each["n"] for each in steps):
        return solution
    last = {"n": 1, "n_correct": int(solution.outcome == "correct")}
    return replace(solution, rollouts=[*steps, last] if solution.completions else [])


def cost_line(rollouts: Rollouts) -> str:
    """Return what the labels cost, for a person."""
    tokens, sampled, took = rollouts.tokens, rollouts.tokens_of_outcomes, "tokens unknown"
    if isinstance(tokens, int):
        took = f"{tokens:,} tokens"
        if isinstance(sampled, int):
            took += f", {tokens / max(1, sampled):.1f} times what sampling the solutions took"
    return (
        f"N={rollouts.n}: {rollouts.continuations:,} continuations of "
        f"{rollouts.beginnings:,} beginnings, {took}; the outcome "
        "labels of N=1 took no more"
    )


@dataclass(frozen=True, kw_only=True)
class LabelOptions(ContinueOptions):
    """Label steps by Monte Carlo: continue from each of them and count the right answers.

    The outcome labels (N=1) are there already and cost nothing; this takes N continuations of
    every step of every solution, and says what they cost.

    Attributes:
        rollouts: Continuations per step (the paper's N > 1).
        shard: Continue one of N shares of the steps; `fsdpo-data merge` puts the shards together.
    """

    rollouts: int
    shard: Shard = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rollouts < 2:
            raise self.refusal(
                "rollouts",
                "expected at least 2. With one, the label is the outcome, which `fsdpo-data build` "
                "has written already.",
            )

    def stage(self) -> LabelStage:
        """Resolve who continues."""
        return LabelStage(self.continuer(self.rollouts), self.workers)
