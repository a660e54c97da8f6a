"""The parts of a manifest: typed where we read them; fields of later releases are kept."""

from pathlib import Path
from typing import Any, Literal, Self

import pydantic

from fsdpo_data.core.identity import file_sha256
from fsdpo_data.dataset.schema import CONFIGS

Number = int | float  #: A whole number stays one: 1 and 1.0 have different digests.
Interval = list[Number] | None
Unknown = Literal["unknown"]  #: What a recording may not say.


class ManifestSection(pydantic.BaseModel):
    """A part of the manifest: typed where we read it; the rest is kept, and the order of it all."""

    model_config = pydantic.ConfigDict(
        extra="allow", strict=True, allow_inf_nan=False, defer_build=True, populate_by_name=True
    )

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _in_order(cls, said: Any, handler: pydantic.ModelWrapValidatorHandler[Self]) -> Self:
        made = handler(said)
        if isinstance(said, dict):
            fields = made.__dict__
            known = {field.alias or name: name for name, field in cls.model_fields.items()}
            names = [known[name] for name in (*said, *known) if name in known]
            object.__setattr__(made, "__dict__", {name: fields[name] for name in names})
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return the part as JSON values; what was never said is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class ArtifactRef(ManifestSection):
    """A model or a file that can be found again; see :mod:`fsdpo_data.core.identity`."""

    name: str
    revision: str


class EngineRef(ManifestSection):
    """What ran a model, and in which precision."""

    dtype: str
    name: str


class SamplingSection(ManifestSection):
    """A :class:`~fsdpo_data.core.sampling.SamplingSpec`."""

    max_tokens: int | Unknown
    n: int
    seed: int | Unknown
    stop: list[str]
    temperature: Number | Unknown
    top_p: Number | Unknown


class TemplateRef(ManifestSection):
    """A :class:`~fsdpo_data.models.prompts.Template`."""

    name: str
    digest: str


class PrmFormatRef(ManifestSection):
    """A :class:`~fsdpo_data.engines.scorers.prm_formats.PrmFormat`, and what its number means."""

    name: str
    digest: str
    meaning: str


class ScoreSection(ManifestSection):
    """Who scored the steps, and how; of a model of others, under which convention."""

    engine: EngineRef
    prm: ArtifactRef
    prm_format: PrmFormatRef | None = None
    reference: ArtifactRef | None = None


class PairSection(ManifestSection):
    """How pairs were chosen."""

    aggregate: str = "mean"


class SparseSection(ManifestSection):
    """A part to which stages add, and from which they take away."""

    @pydantic.model_serializer(mode="wrap")
    def _without_absent(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        said: dict[str, Any] = handler(self)
        absent = {name for name, value in self.__dict__.items() if value is None}
        return {name: value for name, value in said.items() if name not in absent}


class SpecSection(SparseSection):
    """Everything that decided the content: of the samples, then of each later stage."""

    digest: str
    engine: EngineRef
    grader: str
    labels: str
    model: ArtifactRef
    problems: dict[str, int | str]
    sampling: SamplingSection
    segmenter: str
    thinking: str | None = None
    sources: list[ArtifactRef]
    template: TemplateRef
    score: ScoreSection | None = None
    label: ManifestSection | None = None
    pair: PairSection | None = None
    grade: ManifestSection | None = None
    decontaminate: ManifestSection | None = None

    @property
    def rewards_are_probabilities(self) -> bool:
        """Whether step rewards are; those of our own reward models, and of many others."""
        return self.reward_meaning == "probability"

    @property
    def reward_meaning(self) -> str:
        """What the number of a step is."""
        told = self.score.prm_format if self.score else None
        return told.meaning if told else "probability"

    def without_digest(self) -> dict[str, Any]:
        """Return the spec without its digest."""
        return {name: value for name, value in self.to_dict().items() if name != "digest"}


class RowCounts(ManifestSection):
    """Rows of each config."""

    problems: int
    solutions: int
    pairs: int


class AccuracyStats(ManifestSection):
    """Right solutions among graded ones."""

    value: Number | None
    correct: int
    n: int
    ci95: Interval


class PassAtK(ManifestSection):
    """Problems with a right solution among those with a gold answer."""

    value: Number | None
    solved: int
    n: int
    ci95: Interval


class SolutionStats(ManifestSection):
    """What the counts mean; every share carries its denominator."""

    accuracy: AccuracyStats
    pass_at_k: PassAtK
    mixed_problems: int
    truncated: int
    unique_solutions: int
    tokens_per_second: Number | None


class ThinkingStats(ManifestSection):
    """Solutions that thought before they answered, by whether the thinking ended."""

    closed: int
    unclosed: int
    tokens: int | Unknown


class CostStats(ManifestSection):
    """What the dataset has cost, over all its stages."""

    tokens: int | Unknown
    prm_calls: int
    seconds: Number


class FileEntry(ManifestSection):
    """A file of the dataset."""

    path: str  #: Where it is: ``config/name.parquet``, and nowhere else.
    sha256: str
    bytes: int
    rows: int
    text_sha256: str | None = None  #: Of the texts before they were cut into steps; solutions only.

    @pydantic.field_validator("path")
    @classmethod
    def _is_ours(cls, path: str) -> str:
        folder, _, name = path.partition("/")
        if folder not in CONFIGS or "/" in name or "\\" in name or not name.endswith(".parquet"):
            raise ValueError(f"names a file {path!r}, which is none of a dataset")
        return path

    @classmethod
    def from_file(cls, root: Path, path: str, rows: int, text_sha256: str | None = None) -> Self:
        """Describe a finished file of the dataset in ``root``."""
        file = root / path
        texts = {"text_sha256": text_sha256} if text_sha256 is not None else {}
        size = file.stat().st_size
        return cls(path=path, sha256=file_sha256(file), bytes=size, rows=rows, **texts)


class RankingStats(ManifestSection):
    """A :class:`~fsdpo_data.core.statistics.RankingAuc`."""

    value: Number | None
    problems: int
    ci95: Interval


class RewardStats(ManifestSection):
    """What the step rewards are worth; see :func:`fsdpo_data.stages.score.reward_statistics`."""

    scored: int
    unscored: int
    mean_correct: Number | None
    mean_incorrect: Number | None
    ranking_auc: dict[str, RankingStats]


class ContinuationStats(ManifestSection):
    """What continuations cost: ``n`` of each beginning."""

    n: int
    prefixes: int
    continuations: int
    tokens: int | Unknown
    seconds: Number


class RolloutStats(ContinuationStats):
    """What Monte-Carlo labels cost, and on how many steps they are not the outcome's."""

    steps: int
    mean: Number | None
    label_disagreements: int
    sampling_tokens: int | Unknown


class JudgeStats(ContinuationStats):
    """What a judge has found, by the majority of its votes; see :mod:`fsdpo_data.stages.judge`."""

    solutions: int  #: Judged solutions; those with equal texts are asked once.
    unreadable: int  #: Critiques that are no vote.
    without_vote: int = 0  #: Solutions without a vote; they have no labels of steps.
    no_error: int = 0
    ties: int = 0  #: Solutions with as many votes for another step: the one first given counts.
    correct_with_error: int = 0  #: Right answers in whose solution an error was found.
    kept: int | None = None  #: Solutions on which Monte-Carlo labels agree; None if not asked.
    dropped: int | None = None


class PairStats(ManifestSection):
    """What the pairs are like; see :mod:`fsdpo_data.pairs.statistics`."""

    pairs: int
    problems: dict[str, int]
    solutions: dict[str, int]
    margin: dict[str, Number | None] | None = None
    first_error: Number | None = None
    length: dict[str, Number | None]
    resampled: ContinuationStats | None = None


class ContaminationStats(ManifestSection):
    """How many problems overlap with benchmarks, and what counts as an overlap."""

    ngram: int
    overlap: Number
    problems: int
    contaminated: int
    benchmarks: list[ArtifactRef]


class RegradeStats(ManifestSection):
    """How many solutions went from which outcome to which, under another grader."""

    old_grader: str = pydantic.Field(alias="from")
    new_grader: str = pydantic.Field(alias="to")
    changed: int
    outcomes: list[list[str | int]]
