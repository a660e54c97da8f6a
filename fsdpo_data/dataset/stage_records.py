"""The entries of the stages that other stages read: problems, samples, grades and pairs.

The registrations of the stages are in :mod:`fsdpo_data.stages`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

import pydantic

from fsdpo_data.core.cost import NO_COST
from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.identity import RELEASE, EngineRef, ModelRef, SourceRef, digest
from fsdpo_data.core.sampling import UNKNOWN, SamplingSpec, sampling_id
from fsdpo_data.dataset.manifest import (
    AnyRecord,
    FileEntry,
    Manifest,
    RawRecord,
    StageCounts,
    StageRecord,
    files_digest,
    merge_plugins,
)
from fsdpo_data.dataset.schema import SCHEMA_VERSION
from fsdpo_data.engines.answer_judge import AnswerJudgeSettings
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.engines.scorers.prm_formats import ScoreSettings
from fsdpo_data.models.prompts import TemplateRef
from fsdpo_data.pairs.checks import ImportedPairSettings, PairSettings
from fsdpo_data.problems.load import ProblemSet

PROBLEMS_STAGE = "problems"  #: Name of the stage that reads the problems.
SAMPLE_STAGE = "sample"  #: Name of the stage that samples the solutions.
GRADE_STAGE = "grade"  #: Name of the stage that grades the solutions.
PAIR_STAGE = "pair"  #: Name of the stages that pair solutions.
SELECTED_ROWS = "rows"  #: What a selection writes: a part of the problems and solutions.
NO_GRADER = "none"  #: Name in place of a grader, for solutions that nothing graded.


class ProblemSettings(FileModel):
    """The problems of a dataset."""

    sources: list[SourceRef]  #: Files and datasets that the problems come from.
    digest: str  #: Digest of the ids of the problems, in their order.
    #: How many problems of the sources were drawn or generated; None for all of them.
    limit: int | None = None
    limit_seed: int = 0  #: Seed of the problems that were drawn or generated.


#: The entry of the problems.
ProblemsRecord: TypeAlias = StageRecord[ProblemSettings, StageCounts]


class SearchSettings(FileModel):
    """A search for solutions: its settings, and the reward model that ranks partial solutions."""

    sampler: str  #: Name of the search, such as ``beam``.
    beam: BeamSpec  #: Settings of the beam search.
    reward_model: ScoreSettings  #: The reward model.


class SampleSettings(FileModel):
    """Everything that determines the samples of a dataset."""

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
        return {**data, "sampling": known_values, "unknown_fields": tuple(unknown_names)}

    @pydantic.field_serializer("sampling")
    def _write_sampling(self, sampling: SamplingSpec) -> dict[str, Any]:
        return self.sampling_values

    @property
    def sampling_values(self) -> dict[str, Any]:
        """The sampling settings as a file has them, with ``unknown`` for unknown ones."""
        return self.sampling.model_dump() | dict.fromkeys(self.unknown_fields, UNKNOWN)

    @property
    def sampling_id(self) -> str:
        """The id of the samples, without their number."""
        search = None
        if self.search is not None:
            # The steps of a search depend on the segmenter. The rewards of one reward model are
            # taken as equal on all engines.
            search = {
                "sampler": self.search.sampler,
                **self.search.beam.model_dump(),
                **self.search.reward_model.to_dict(),
                "segmenter": self.segmenter,
            }
            del search["engine"]
        recording = self.engine.recording or ""
        return sampling_id(
            self.model,
            self.template.digest,
            self.sampling,
            recording,
            search,
            self.engine.request_fields,
        )


#: The entry of the samples.
SampleRecord: TypeAlias = StageRecord[SampleSettings, StageCounts]


class GradeSettings(FileModel):
    """Everything that determines the outcomes of the solutions."""

    grader: str  #: Full name of the grader, such as ``math@6``.
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


#: The entry of the grades.
GradeRecord: TypeAlias = StageRecord[GradeSettings, GradeCounts]


class ScoreCounts(StageCounts):
    """What the rows do not tell about step rewards."""

    #: How the PRM format was recognised; empty for a reward model of ``fsdpo-train prm``.
    format_evidence: str = ""


#: The entry of the stage that scored the steps.
ScoreRecord: TypeAlias = StageRecord[ScoreSettings, ScoreCounts]


class PairCounts(StageCounts):
    """What the rows of pairs do not tell."""

    continued_prefixes: int = 0  #: Prefixes that were continued; 0 without continuations.


#: The entry of the pairs, whose rows every seal checks.
PairRecord: TypeAlias = StageRecord[PairSettings, PairCounts]


def has_imported_pairs(manifest: Manifest) -> bool:
    """Return whether the pairs of a dataset are imported, so that both sides end early."""
    record = manifest.find(PAIR_STAGE, PairRecord)
    return record is not None and isinstance(record.options, ImportedPairSettings)


def lacks_chat_format(manifest: Manifest) -> bool:
    """Return whether a server put its chat format around the prompts of a dataset.

    The prompts in the rows are the messages of the user then, which the model never saw alone.
    """
    record = manifest.find(SAMPLE_STAGE, SampleRecord)
    return record is not None and record.options.engine.api == "chat"


def problem_settings(source: ProblemSet) -> ProblemSettings:
    """Return the settings of problems that identify a run: their sources and the problems."""
    problem_ids = [problem.id for problem in source.problems]
    return ProblemSettings(sources=list(source.source_refs), digest=digest(problem_ids))


def problem_record(source: ProblemSet) -> ProblemsRecord:
    """Return the entry of problems: how they were drawn, and unusable input rows by reason."""
    reasons = Counter(row.reason.partition(":")[0] for row in source.quarantined_rows)
    counts = StageCounts(quarantined=dict(sorted(reasons.items())))
    settings = problem_settings(source)
    settings.limit = source.limit
    settings.limit_seed = source.limit_seed
    return ProblemsRecord(name=PROBLEMS_STAGE, options=settings, counts=counts)


def make_manifest(records: Sequence[AnyRecord], files: list[FileEntry]) -> Manifest:
    """Describe a newly built dataset, whose ``files`` are finished.

    Args:
        records: The entries of the stages; the entry of the problems comes first.
        files: Entries of all files; the file of ``problems`` comes first.
    """
    return Manifest(
        schema_version=SCHEMA_VERSION,
        digest=files_digest(files),
        parent=digest(records[0].options.sources),
        made_by=RELEASE,
        stages=[RawRecord.model_validate(record.to_dict()) for record in records],
        cost=sum((record.cost for record in records), NO_COST),
        files=files,
        plugins=merge_plugins(),
    )
