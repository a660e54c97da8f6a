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
from fsdpo_data.dataset.manifest_sections import JudgeStats
from fsdpo_data.dataset.run import RunDir
from fsdpo_data.dataset.schema import replace_column
from fsdpo_data.dataset.stage import DatasetDraft, Stage
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.engines.scorers.critiques import (
    NO_ERROR,
    critique_prompt,
    majority_vote,
    read_votes,
    steps_approved,
)
from fsdpo_data.engines.scorers.prm_formats import PrmFormat
from fsdpo_data.models.prompts import Template
from fsdpo_data.stages.continuations import ContinuationSampler, Prefix, prefix_id
from fsdpo_data.stages.score import questions_of

FOLDER = "critiques"  #: Folder of the critiques inside the new dataset's directory.
StepCounts = list[dict[str, int]]


@dataclass(frozen=True)
class JudgeStage(Stage):
    """Writes ``rollouts``: of each step (n, n_correct), votes and those that find no error yet."""

    spec_key = "label"

    continuer: ContinuationSampler  #: Who judges; ``n`` is the number of votes.
    critique_format: PrmFormat  #: What it is asked, and how its critiques are read.
    template: Template
    #: What the Monte-Carlo labels to agree with are made by; None to write every judgement.
    consensus: Mapping[str, Any] | None = None

    def spec(self) -> Mapping[str, Any]:
        """Return who judges, and how."""
        judge = self.critique_format.manifest_entry() | {"template": self.template.name}
        consensus = {"consensus": self.consensus} if self.consensus else {}
        return {**self.continuer.spec(), "judge": judge, **consensus}

    def run_shard(self, draft: DatasetDraft, shard: JobShard) -> None:
        """Ask for some of the critiques."""
        with self.continuer.run(draft, FOLDER, partial(self._prefixes_to_judge, draft), shard):
            pass

    def run(self, draft: DatasetDraft) -> None:
        """Ask for every critique that is owed, then count and write."""
        manifest, tally = draft.manifest, Counter[str]()
        with self.continuer.run(draft, FOLDER, partial(self._prefixes_to_judge, draft)) as run:
            draft.rewrite_config("solutions", "count", partial(self._count_steps, draft, run))
            # Of what was written before an interruption, too.
            for file in manifest.config_paths(draft.parent_root, "solutions"):
                for row, votes in self._read_votes(draft, run, pq.read_table(file)):
                    tally.update({} if votes is None else self._manifest_counts(row, votes))
            manifest.judge = JudgeStats.model_validate(
                self.continuer.record_cost(run, manifest).to_dict() | tally
            )
            manifest.rollouts = None

    def _prefixes_to_judge(self, draft: DatasetDraft) -> Iterator[Prefix]:
        # As they were: those written already have lost what is agreed with.
        for file in draft.manifest.config_paths(draft.parent_root, "solutions"):
            for _, prompt in self._prompts(draft, pq.read_table(file)):
                if prompt:
                    yield prefix_id(prompt), prompt

    def _prompts(
        self, draft: DatasetDraft, table: pa.Table
    ) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield a file's solutions, each with what is asked of it; empty if nothing is."""
        questions = questions_of(draft.current_files("problems"), table["problem_id"])
        names = ["problem_id", "completions", "outcome", "rollouts"]
        for row in table.select(names).to_pylist():
            item = ScorerInput("", row["completions"], questions[row["problem_id"]])
            owed = row["completions"] and (self.consensus is None or row["rollouts"] is not None)
            yield row, critique_prompt(self.critique_format, self.template, item) if owed else ""

    def _read_votes(
        self, draft: DatasetDraft, run: RunDir, table: pa.Table
    ) -> Iterator[tuple[dict[str, Any], list[int] | None]]:
        """Yield a file's solutions, each with its votes; None if it was not asked."""
        asked = list(self._prompts(draft, table))
        records = run.read_records(prefix_id(prompt) for _, prompt in asked if prompt)
        for row, prompt in asked:
            critiques = next(records)["completions"] if prompt else []
            told = ((each["text"], each["finish_reason"]) for each in critiques)
            votes = read_votes(self.critique_format, told, len(row["completions"]))
            yield row, votes if prompt else None

    def _count_steps(self, draft: DatasetDraft, run: RunDir, table: pa.Table) -> pa.Table:
        """Return a file's solutions with the counts of their steps."""
        counts = [self._counts(row, votes) for row, votes in self._read_votes(draft, run, table)]
        return replace_column(table, "rollouts", counts)

    def _counts(self, row: Mapping[str, Any], votes: list[int] | None) -> StepCounts | None:
        if votes and self.consensus is not None:
            agreed = majority_vote(votes) == first_failed_step(row["rollouts"])
            votes = [majority_vote(votes)] if agreed else None
        approved = steps_approved(votes or [], len(row["completions"]))
        return [{"n": len(votes), "n_correct": each} for each in approved] if votes else None

    def _manifest_counts(self, row: Mapping[str, Any], votes: list[int]) -> dict[str, int]:
        """Return what a solution adds to the manifest's counts."""
        first, most = majority_vote(votes) if votes else None, sorted(Counter(votes).values())
        kept = self._counts(row, votes) is not None
        return {
            "solutions": 1,
            "unreadable": self.continuer.sampling.n - len(votes),
            "without_vote": first is None,
            "no_error": first == NO_ERROR,
            "correct_with_error": bool(votes) and first != NO_ERROR and row["outcome"] == "correct",
            "ties": len(most) > 1 and most[-2] == most[-1],
            **({} if self.consensus is None else {"kept": kept, "dropped": not kept}),
        }


def first_failed_step(rollouts: Sequence[Mapping[str, int]]) -> int:
    """Return the first step from which no continuation ended right, or ``NO_ERROR``."""
    return next((k for k, each in enumerate(rollouts) if not each["n_correct"]), NO_ERROR)
