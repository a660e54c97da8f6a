"""Step labels of a judge: a model reads each solution and names its first wrong step.

One line of the run holds the prompt for a solution with its critiques, and survives an
interruption. Every readable critique is a vote. The counts of a step are the number of votes and
the number of votes without an error up to that step. With ``consensus`` a solution keeps its labels
only if the majority names the same first wrong step as its Monte-Carlo labels (Zhang et al. 2025).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from fsdpo_data.core.failures import FailurePolicy
from fsdpo_data.core.job_shard import JobShard
from fsdpo_data.core.lazy import pa
from fsdpo_data.core.sampling import Prompt
from fsdpo_data.dataset.manifest import AnyRecord
from fsdpo_data.dataset.problem_rows import questions_by_id
from fsdpo_data.dataset.run_directory import RunDir
from fsdpo_data.dataset.schema import read_table, replace_column
from fsdpo_data.dataset.stage import DatasetDraft, Stage
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.engines.scorers.critiques import (
    count_approvals,
    critique_prompt,
    majority_vote,
    read_votes,
)
from fsdpo_data.engines.scorers.prm_formats import PrmFormat
from fsdpo_data.models.prompts import Template
from fsdpo_data.stages.continuations import ContinuationSampler, Prefix, prefix_id
from fsdpo_data.stages.label_records import LABEL_STAGE, JudgeCounts, LabelSettings
from fsdpo_data.stages.verdicts import restore_outcome_labels
from fsdpo_data.steps.first_error import NO_ERROR, find_first_wrong

FOLDER = "critiques"  #: Folder of the critiques inside the new dataset's directory.
StepCounts: TypeAlias = list[dict[str, int]]  #: ``n`` and ``n_correct`` of each step.


class _JudgePrompt(NamedTuple):
    """A solution with the prompt for the judge."""

    row: dict[str, Any]  #: Columns of the solution.
    prompt: str  #: The prompt; empty if the judge does not read this solution.


class _SolutionVotes(NamedTuple):
    """A solution with the judge's votes."""

    row: dict[str, Any]  #: Columns of the solution.
    votes: list[int] | None  #: First wrong steps; None if the judge did not read the solution.


@dataclass(frozen=True)
class JudgeStage(Stage):
    """Writes ``rollouts``: for each step the votes (n) and those without an error so far."""

    name = LABEL_STAGE
    writes = ("rollouts",)

    critique_sampler: ContinuationSampler  #: Samples critiques; ``n`` is the number of votes.
    critique_format: PrmFormat  #: Prompt of the judge, and the format of its critiques.
    template: Template  #: Prompt template of the judge.
    #: Settings of the Monte-Carlo labels to agree with; None to keep every label.
    consensus: LabelSettings | None = None

    @property
    def failure_policy(self) -> FailurePolicy:
        """When the stage stops because of prompts that the engine refuses."""
        return self.critique_sampler.failure_policy

    def options(self) -> LabelSettings:
        """Return the judge, its format and its sampling parameters."""
        return LabelSettings(
            continuations=self.critique_sampler.settings,
            judge=self.critique_format.ref,
            judge_template=self.template.name,
            consensus=self.consensus,
        )

    def run_shard(self, draft: DatasetDraft, shard: JobShard) -> None:
        """Sample the critiques of one shard of the solutions."""
        list_prefixes = partial(self._prefixes_to_judge, draft)
        with self.critique_sampler.sample_continuations(
            draft, FOLDER, list_prefixes, shard, on_new_records=draft.discard_solutions
        ):
            pass

    def run(self, draft: DatasetDraft) -> AnyRecord:
        """Sample the missing critiques, then write the counts and their statistics."""
        manifest = draft.manifest
        list_prefixes = partial(self._prefixes_to_judge, draft)
        with self.critique_sampler.sample_continuations(
            draft, FOLDER, list_prefixes, on_new_records=draft.discard_solutions
        ) as run:
            draft.rewrite_config("solutions", "count", partial(self._count_steps, draft, run))
            totals = Counter[str]()
            # Read all files of the parent: a resumed run does not rewrite every file.
            for file in manifest.config_paths(draft.parent_root, "solutions"):
                for solution in self._read_votes(draft, run, read_table("solutions", file)):
                    if solution.votes is not None:
                        totals.update(self._manifest_counts(solution.row, solution.votes))
            counts = JudgeCounts.model_validate(
                {
                    "prompts": len(run.line_spans),
                    "failed": len(self.critique_sampler.open_failures(run)),
                    **{name: int(total) for name, total in totals.items()},
                }
            )
            return self.make_record(counts, self.critique_sampler.measure_cost(run))

    def _prefixes_to_judge(self, draft: DatasetDraft) -> Iterator[Prefix]:
        """Yield the prompts for the judge."""
        # Read the parent: files that are already rewritten lack the Monte-Carlo labels.
        for file in draft.manifest.config_paths(draft.parent_root, "solutions"):
            for _, prompt in self._prompts(draft, read_table("solutions", file)):
                if prompt:
                    yield Prefix(prefix_id(prompt), Prompt(prompt))

    def _prompts(self, draft: DatasetDraft, table: pa.Table) -> Iterator[_JudgePrompt]:
        """Yield the solutions of a file, each with its prompt for the judge."""
        questions = questions_by_id(draft.current_files("problems"), table["problem_id"])
        columns = ["problem_id", "completions", "outcome", "rollouts"]
        for row in table.select(columns).to_pylist():
            has_labels = self.consensus is None or row["rollouts"] is not None
            prompt = ""
            if row["completions"] and has_labels:
                question = questions[row["problem_id"]]
                item = ScorerInput(prompt="", steps=row["completions"], question=question)
                prompt = critique_prompt(self.critique_format, self.template, item)
            yield _JudgePrompt(row, prompt)

    def _read_votes(
        self, draft: DatasetDraft, run: RunDir, table: pa.Table
    ) -> Iterator[_SolutionVotes]:
        """Yield the solutions of a file, each with its votes."""
        judge_prompts = list(self._prompts(draft, table))
        prompt_ids = [prefix_id(prompt) if prompt else "" for _, prompt in judge_prompts]
        records = run.read_records(key for key in prompt_ids if key in run.line_spans)
        for (row, prompt), prompt_id in zip(judge_prompts, prompt_ids, strict=True):
            if prompt_id not in run.line_spans:  # not for the judge, or the prompt has failed
                yield _SolutionVotes(row, votes=None)
                continue
            critiques = next(records).completions
            votes = read_votes(self.critique_format, prompt, critiques, len(row["completions"]))
            yield _SolutionVotes(row, votes)

    def _count_steps(self, draft: DatasetDraft, run: RunDir, table: pa.Table) -> pa.Table:
        """Return the solutions of a file with the counts of their steps."""
        counts = [
            self._step_counts(solution.row, solution.votes)
            for solution in self._read_votes(draft, run, table)
        ]
        return replace_column(restore_outcome_labels(table), "rollouts", counts)

    def _step_counts(self, row: Mapping[str, Any], votes: list[int] | None) -> StepCounts | None:
        """Return the counts of a solution's steps; None without votes or without consensus."""
        if not votes:
            return None
        if self.consensus is not None:
            majority = majority_vote(votes)
            if majority != first_failed_step(row["rollouts"]):
                return None
            votes = [majority]
        approvals = count_approvals(votes, len(row["completions"]))
        return [{"n": len(votes), "n_correct": approved} for approved in approvals]

    def _manifest_counts(self, row: Mapping[str, Any], votes: list[int]) -> dict[str, int]:
        """Return the contribution of a solution to the counts in the manifest."""
        majority = majority_vote(votes) if votes else None
        has_error = majority is not None and majority != NO_ERROR
        vote_counts = sorted(Counter(votes).values())
        counts = {
            "solutions": 1,
            "unreadable": self.critique_sampler.sampling.n - len(votes),
            "without_vote": majority is None,
            "no_error": majority == NO_ERROR,
            "correct_with_error": has_error and row["outcome"] == "correct",
            "ties": len(vote_counts) > 1 and vote_counts[-2] == vote_counts[-1],
        }
        if self.consensus is not None:
            is_kept = self._step_counts(row, votes) is not None
            counts |= {"kept_solutions": is_kept, "dropped_solutions": not is_kept}
        return counts


def first_failed_step(rollouts: Sequence[Mapping[str, int] | None]) -> int:
    """Return the first step without a correct continuation, or ``NO_ERROR``.

    Steps that a search did not continue have no counts, and are not the first to fail.
    """
    return find_first_wrong(counts is not None and not counts["n_correct"] for counts in rollouts)


def judge_rows(settings: LabelSettings, counts: JudgeCounts) -> list[tuple[str, str]]:
    """Return the rows of a dataset's summary about the labels of a judge."""
    critiques = settings.continuations
    rows = [
        (
            "judge",
            f"{critiques.model.name}, {critiques.sampling.n} votes on each of "
            f"{counts.solutions:,} solutions: {counts.no_error:,} without an error, "
            f"{counts.correct_with_error:,} correct with an error; {counts.ties:,} ties, "
            f"{counts.unreadable:,} unreadable critiques",
        )
    ]
    if counts.kept_solutions is not None:
        text = (
            f"{counts.kept_solutions:,} solutions keep their labels, because judge and Monte-Carlo "
            f"labels agree; {counts.dropped_solutions:,} lose them"
        )
        rows.append(("consensus", text))
    return rows
