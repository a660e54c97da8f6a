"""Labels of a judge: a model reads each solution and names its first wrong step, or none.

The unit that survives a stop is what a solution is asked as, with the critiques that came back.
Every critique that can be read is a vote, and the counts of a step are the votes that find no error
up to it: the votes are in them, whole. With ``consensus`` only those solutions keep labels of which
the majority names the same first wrong step as their Monte-Carlo labels (Zhang et al. 2025).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fsdpo_data.core.job_shard import JobShard
from fsdpo_data.core.lazy import pa, pq
from fsdpo_data.dataset.derive import Draft, Stage
from fsdpo_data.dataset.parts import Judged
from fsdpo_data.dataset.run import RunDir
from fsdpo_data.dataset.schema import with_column
from fsdpo_data.engines.scorers import SteppedText
from fsdpo_data.engines.scorers.conventions import Convention
from fsdpo_data.engines.scorers.critiques import (
    NO_ERROR,
    approvals,
    critique_prompt,
    majority,
    read_votes,
)
from fsdpo_data.models.prompts import Template
from fsdpo_data.stages.continuations import Beginning, Continuer, beginning_id
from fsdpo_data.stages.score import questions_of

FOLDER = "critiques"  #: Folder of the critiques inside the new dataset's directory.
Counts = list[dict[str, int]]


@dataclass(frozen=True)
class JudgeStage(Stage):
    """Writes ``rollouts``: of each step (n, n_correct), votes and those that find no error yet."""

    part = "label"

    continuer: Continuer  #: Who judges; ``n`` is the number of votes.
    convention: Convention  #: What it is asked, and how its critiques are read.
    template: Template
    #: What the Monte-Carlo labels to agree with are made by; None to write every judgement.
    consensus: Mapping[str, Any] | None = None

    def spec(self) -> Mapping[str, Any]:
        """Return who judges, and how."""
        judge = self.convention.said() | {"template": self.template.name}
        consensus = {"consensus": self.consensus} if self.consensus else {}
        return {**self.continuer.spec(), "judge": judge, **consensus}

    def run_shard(self, draft: Draft, shard: JobShard) -> None:
        """Ask for some of the critiques."""
        with self.continuer.run(draft, FOLDER, partial(self._wanted, draft), shard):
            pass

    def run(self, draft: Draft) -> None:
        """Ask for every critique that is owed, then count and write."""
        manifest, tally = draft.manifest, Counter[str]()
        with self.continuer.run(draft, FOLDER, partial(self._wanted, draft)) as run:
            draft.rewrite("solutions", "count", partial(self._labelled, draft, run))
            # Of what was written before an interruption, too.
            for file in manifest.paths(draft.source, "solutions"):
                for row, votes in self._judged(draft, run, pq.read_table(file)):
                    tally.update({} if votes is None else self._told(row, votes))
            manifest.judged = Judged.model_validate(
                self.continuer.bill(run, manifest).plain() | tally
            )
            manifest.rollouts = None

    def _wanted(self, draft: Draft) -> Iterator[Beginning]:
        # As they were: those written already have lost what is agreed with.
        for file in draft.manifest.paths(draft.source, "solutions"):
            for _, prompt in self._prompts(draft, pq.read_table(file)):
                if prompt:
                    yield beginning_id(prompt), prompt

    def _prompts(self, draft: Draft, table: pa.Table) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield a file's solutions, each with what is asked of it; empty if nothing is."""
        questions = questions_of(draft.files("problems"), table["problem_id"])
        names = ["problem_id", "completions", "outcome", "rollouts"]
        for row in table.select(names).to_pylist():
            item = SteppedText("", row["completions"], questions[row["problem_id"]])
            owed = row["completions"] and (self.consensus is None or row["rollouts"] is not None)
            yield row, critique_prompt(self.convention, self.template, item) if owed else ""

    def _judged(
        self, draft: Draft, run: RunDir, table: pa.Table
    ) -> Iterator[tuple[dict[str, Any], list[int] | None]]:
        """Yield a file's solutions, each with its votes; None if it was not asked."""
        asked = list(self._prompts(draft, table))
        records = run.records(beginning_id(prompt) for _, prompt in asked if prompt)
        for row, prompt in asked:
            critiques = next(records)["completions"] if prompt else []
            told = ((each["text"], each["finish_reason"]) for each in critiques)
            votes = read_votes(self.convention, told, len(row["completions"]))
            yield row, votes if prompt else None

    def _labelled(self, draft: Draft, run: RunDir, table: pa.Table) -> pa.Table:
        """Return a file's solutions with the counts of their steps."""
        counts = [self._counts(row, votes) for row, votes in self._judged(draft, run, table)]
        return with_column(table, "rollouts", counts)

    def _counts(self, row: Mapping[str, Any], votes: list[int] | None) -> Counts | None:
        if votes and self.consensus is not None:
            agreed = majority(votes) == first_hopeless(row["rollouts"])
            votes = [majority(votes)] if agreed else None
        approved = approvals(votes or [], len(row["completions"]))
        return [{"n": len(votes), "n_correct": each} for each in approved] if votes else None

    def _told(self, row: Mapping[str, Any], votes: list[int]) -> dict[str, int]:
        """Return what a solution adds to the manifest's counts."""
        first, most = majority(votes) if votes else None, sorted(Counter(votes).values())
        kept = self._counts(row, votes) is not None
        return {
            "solutions": 1,
            "unreadable": self.continuer.sampling.n - len(votes),
            "unjudged": first is None,
            "no_error": first == NO_ERROR,
            "lucky": bool(votes) and first != NO_ERROR and row["outcome"] == "correct",
            "ties": len(most) > 1 and most[-2] == most[-1],
            **({} if self.consensus is None else {"kept": kept, "dropped": not kept}),
        }


def first_hopeless(rollouts: Sequence[Mapping[str, int]]) -> int:
    """Return the first step from which no continuation ended right, or ``NO_ERROR``."""
    return next((k for k, each in enumerate(rollouts) if not each["n_correct"]), NO_ERROR)
