"""The records of the stages that every dataset has: its problems, samples and grades.

A build and an import write them. The registrations are in :mod:`fsdpo_data.stages`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pydantic

from fsdpo_data.core.cost import NO_COST
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.identity import RELEASE, EngineRef, ModelRef, SourceRef, digest
from fsdpo_data.core.sampling import UNKNOWN, SamplingSpec, sampling_id
from fsdpo_data.core.statistics import Mean
from fsdpo_data.dataset.manifest import (
    FileEntry,
    Manifest,
    RawRecord,
    RowCounts,
    StageCounts,
    StageRecord,
    files_digest,
    merge_plugins,
)
from fsdpo_data.dataset.schema import SCHEMA_VERSION
from fsdpo_data.dataset.tally import Tally
from fsdpo_data.engines.answer_judge import AnswerJudgeSettings
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.engines.scorers.prm_formats import RewardModelRef
from fsdpo_data.models.prompts import TemplateRef

PROBLEMS_STAGE = "problems"  #: Name of the stage that reads the problems.
SAMPLE_STAGE = "sample"  #: Name of the stage that samples the solutions.
GRADE_STAGE = "grade"  #: Name of the stage that grades the solutions.
NO_GRADER = "none"  #: Name in place of a grader, for solutions that nothing graded.


class ProblemSettings(FileModel):
    """The problems of a dataset."""

    sources: list[SourceRef]  #: Files and datasets that the problems come from.
    digest: str  #: Digest of the ids of the problems, in their order.


class ProblemCounts(StageCounts):
    """The counts of the problems. A subclass may count more; its fields are kept."""

    model_config = pydantic.ConfigDict(extra="allow")

    problems: int  #: Number of problems.
    #: Input rows that could not be used, by reason.
    quarantined: dict[str, int] = pydantic.Field(default_factory=dict)


class ProblemsRecord(StageRecord[ProblemSettings, ProblemCounts]):
    """The entry of the problems."""


class SearchSettings(RewardModelRef):
    """A search for solutions: its settings, and the reward model that ranks partial solutions."""

    sampler: str  #: Name of the search, such as ``beam``.
    beam: BeamSpec  #: Settings of the beam search.


class SampleSettings(FileModel):
    """Everything that determines the samples of a dataset."""

    # A strict tuple accepts a JSON array, but not the list that a validator has returned.
    model_config = pydantic.ConfigDict(strict=False)

    model: ModelRef  #: The policy that wrote the solutions.
    template: TemplateRef  #: The prompt template.
    #: Sampling settings; ``n`` is the number of solutions per problem. A file has ``unknown`` for
    #: the settings in ``unknown_fields``.
    sampling: SamplingSpec
    engine: EngineRef  #: The engine that sampled the solutions.
    segmenter: str  #: Full name of the segmenter, such as ``auto@1``.
    search: SearchSettings | None = None  #: Set if a search found the solutions.
    #: Names of the settings that are unknown, because a recording does not state them.
    unknown_fields: tuple[str, ...] = pydantic.Field(default=(), exclude=True)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _find_unknown_fields(cls, data: Any) -> Any:
        """Move the names of unknown sampling settings to ``unknown_fields``."""
        sampling = data.get("sampling") if isinstance(data, dict) else None
        if not isinstance(sampling, dict):
            return data
        unknown_names = [name for name, value in sampling.items() if value == UNKNOWN]
        known_values = {name: value for name, value in sampling.items() if value != UNKNOWN}
        return {**data, "sampling": known_values, "unknown_fields": unknown_names}

    @pydantic.field_serializer("sampling")
    def _write_unknown_fields(self, sampling: SamplingSpec) -> dict[str, Any]:
        return sampling.to_json_values() | dict.fromkeys(self.unknown_fields, UNKNOWN)

    @property
    def sampling_id(self) -> str:
        """The id of the samples, without their number."""
        search = None
        if self.search is not None:
            # The steps of a search depend on the segmenter.
            search = {
                **self.search.to_dict(),
                **asdict(self.search.beam),
                "segmenter": self.segmenter,
            }
            del search["beam"]
        recording = self.engine.recording or ""
        return sampling_id(self.model, self.template.digest, self.sampling, recording, search)


class SampleRecord(StageRecord[SampleSettings, StageCounts]):
    """The entry of the samples."""


class GradeSettings(FileModel):
    """Everything that determines the outcomes of the solutions."""

    grader: str  #: Full name of the grader, such as ``math@5``.
    labels: str  #: Name of the rule that sets the column ``labels`` from outcomes.
    #: Whether a solution without text after its thinking may have its answer in the thinking.
    grade_thinking: bool = False
    answer_judge: AnswerJudgeSettings | None = None  #: The judge of undecided answers.


class AnswerJudgeStats(FileModel):
    """The decisions of a judge about undecided answers."""

    answers: int  #: Answers that the judge was asked about.
    correct: int  #: Answers that the judge decided as correct.
    incorrect: int  #: Answers that the judge decided as incorrect.
    undecided: int  #: Answers that stay undecided.
    unreadable: int  #: Undecided answers whose reply has no verdict that can be read.
    replies: int  #: Replies; equal prompts have one reply.
    tokens: int | None  #: Tokens of the replies; None if unknown.
    seconds: float  #: Time of the judge, in seconds.
    #: Accuracy of the graded solutions without the decisions of the judge; datasets only.
    accuracy_without_judge: Mean | None = None

    def describe_decisions(self) -> str:
        """Return the decisions as the part of a sentence, for the terminal."""
        return (
            f"judge was asked about {self.answers:,} undecided answers: {self.correct:,} correct, "
            f"{self.incorrect:,} incorrect, {self.undecided:,} still undecided "
            f"({self.unreadable:,} unreadable replies)"
        )


class GradeCounts(StageCounts):
    """The outcomes that changed when another grader graded the solutions."""

    previous_grader: str | None = None  #: Full name of the previous grader; None after a build.
    changed: int = 0  #: Solutions whose outcome changed.
    #: Rows of (old outcome, new outcome, solutions).
    outcomes: list[tuple[str, str, int]] = pydantic.Field(default_factory=list)
    answer_judge: AnswerJudgeStats | None = None  #: The decisions of the judge.


class GradeRecord(StageRecord[GradeSettings, GradeCounts]):
    """The entry of the grades."""


def problem_record(
    sources: Sequence[SourceRef], problems: Sequence[Problem], quarantined: Mapping[str, int]
) -> ProblemsRecord:
    """Return the entry of problems, with the number of unusable input rows by reason."""
    counts = ProblemCounts(problems=len(problems), quarantined=dict(sorted(quarantined.items())))
    options = problem_settings(sources, problems)
    return ProblemsRecord(name=PROBLEMS_STAGE, options=options, counts=counts)


def problem_settings(sources: Sequence[SourceRef], problems: Sequence[Problem]) -> ProblemSettings:
    """Return the settings of problems."""
    return ProblemSettings(
        sources=list(sources), digest=digest([problem.id for problem in problems])
    )


def make_manifest(
    records: Sequence[StageRecord[Any, Any]], files: list[FileEntry], tally: Tally
) -> Manifest:
    """Describe a newly built dataset, whose ``files`` are finished.

    Args:
        records: The entries of the stages; the entry of the problems comes first.
        files: Entries of all files; the file of ``problems`` comes first.
        tally: Counts over all solutions.
    """
    return Manifest(
        schema_version=SCHEMA_VERSION,
        digest=files_digest(files),
        parent=digest(records[0].options.sources),
        made_by=RELEASE,
        stages=[RawRecord.model_validate(record.to_dict()) for record in records],
        rows=RowCounts(problems=files[0].rows, solutions=tally.solutions, pairs=0),
        outcomes=dict(sorted(tally.outcomes.items())),
        labels=tally.label_counts(),
        grader_rules=dict(sorted(tally.grader_rules.items())),
        statistics=tally.statistics(),
        thinking=tally.thinking_stats(),
        cost=sum((record.cost for record in records), NO_COST),
        files=files,
        plugins=merge_plugins(),
    )
