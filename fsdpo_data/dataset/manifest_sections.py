"""The sections of a manifest, as pydantic models.

The models type the fields that are read. Other fields, such as those of plug-ins, are kept.
"""

from pathlib import Path
from typing import Any, Literal, Self

import pydantic

from fsdpo_data.core.identity import file_sha256
from fsdpo_data.core.plugins import PluginRef, loaded_plugins
from fsdpo_data.core.statistics import Interval
from fsdpo_data.dataset.schema import CONFIGS
from fsdpo_data.pairs.checks import IMPORTED_STYLE
from fsdpo_data.steps.rewards import OUTCOME_AGGREGATE, PAIR_AGGREGATE

MAX_FILE_NAME_BYTES = 255  #: Length limit of a file name on usual file systems, in bytes.

#: Value of ``thinking`` in the spec if the grading reads thinking (``grade_thinking``).
THINKING_GRADED = "graded"

#: Value of ``search`` in the spec of labels by a binary search for the first error.
FIRST_ERROR_SEARCH = "first-error"

Number = int | float  #: An integer stays an integer, because 1 and 1.0 have different digests.
#: The value of a field that is unknown, because the completions were imported from other software.
Unknown = Literal["unknown"]


class ManifestSection(pydantic.BaseModel):
    """A section of the manifest, which keeps unknown fields and the order of its keys."""

    model_config = pydantic.ConfigDict(
        extra="allow", strict=True, allow_inf_nan=False, defer_build=True, populate_by_name=True
    )

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _keep_key_order(cls, data: Any, handler: pydantic.ModelWrapValidatorHandler[Self]) -> Self:
        """Validate a section and order its fields like the keys of ``data``."""
        if not isinstance(data, dict):
            return handler(data)
        section = handler(data)
        fields_by_key = {field.alias or name: name for name, field in cls.model_fields.items()}
        ordered_names = [
            fields_by_key[key] for key in (*data, *fields_by_key) if key in fields_by_key
        ]
        values = section.__dict__
        object.__setattr__(section, "__dict__", {name: values[name] for name in ordered_names})
        return section

    def to_dict(self) -> dict[str, Any]:
        """Return the section as JSON values, without the fields that were never set."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class ArtifactRef(ManifestSection):
    """A reference to a model or a file by name and revision.

    :mod:`fsdpo_data.core.identity` computes the revisions.
    """

    name: str  #: Repository or file name.
    revision: str  #: Commit or content digest.


class SourceSection(ArtifactRef):
    """A file or dataset that problems come from."""

    split: str  #: The split of the source.


class EngineRef(ManifestSection):
    """The engine that ran a model, and its precision."""

    dtype: str  #: Floating-point type of the weights, such as ``bfloat16``.
    name: str  #: Name of the engine, such as ``vllm``.


class SamplingSection(ManifestSection):
    """The fields of a :class:`~fsdpo_data.core.sampling.SamplingSpec`."""

    max_tokens: int | Unknown  #: Most tokens of one completion.
    n: int  #: Samples per problem.
    seed: int | Unknown  #: Seed of the random sampling.
    stop: list[str]  #: Strings that end a completion.
    temperature: Number | Unknown  #: Softmax temperature; 0 is greedy decoding.
    top_p: Number | Unknown  #: Probability mass of nucleus sampling.


class TemplateRef(ManifestSection):
    """A reference to a :class:`~fsdpo_data.models.prompts.Template`."""

    name: str  #: Name with version, such as ``alpaca@1``; the stem of a template file.
    digest: str  #: Digest of the template's text.
    text: str | None = None  #: Text of a template file; unset for templates with a version.


class PrmFormatRef(ManifestSection):
    """A reference to a :class:`~fsdpo_data.engines.scorers.prm_formats.PrmFormat`."""

    name: str  #: Name of the PRM format.
    digest: str  #: Digest of its definition.
    meaning: str  #: Meaning of the step rewards, such as ``probability``.


class ScoreSection(ManifestSection):
    """The reward model that scored the steps."""

    engine: EngineRef  #: The engine that ran the reward model.
    prm: ArtifactRef  #: The reward model.
    #: The format of a published PRM; None for a reward model of ``fsdpo-train prm``.
    prm_format: PrmFormatRef | None = None
    reference: ArtifactRef | None = None  #: The reference model of implicit rewards.
    last_step_only: bool = False  #: Whether the reward model was trained on last steps only.


class SearchSection(ManifestSection):
    """The search that found the solutions: its settings and its reward model."""

    sampler: str  #: Name of the search, such as ``beam``.
    b1: int  #: Next steps per solution of the beam.
    b2: int  #: Size of the beam.
    prm: ArtifactRef  #: The reward model that ranked partial solutions.
    #: The format of a published PRM; None for a reward model of ``fsdpo-train prm``.
    prm_format: PrmFormatRef | None = None
    last_step_only: bool = False  #: Whether the reward model was trained on last steps only.


class StepLabelSection(ManifestSection):
    """The format of imported step labels; ``sources`` has the file."""

    format: str  #: Name of the format, such as ``prm800k``.
    meaning: str  #: How the labels of the format became labels from 0 to 1.
    drops: str  #: Data of the rows that were not imported.


class PairSection(ManifestSection):
    """The options that selected the pairs."""

    #: ``full`` for complete solutions, ``step-dpo``, or ``imported``.
    style: str = "full"
    aggregate: str = "mean"  #: The aggregate of step rewards that ranked the solutions.


class PluginEntry(ManifestSection):
    """A plug-in that was loaded when the dataset was sealed."""

    module: str  #: Name of the module.
    version: str  #: Version of the installed package; empty for a file.
    sha256: str  #: SHA-256 of the module's source file; empty without a file.


def plugin_entries(earlier: list[PluginEntry] | None = None) -> list[PluginEntry] | None:
    """Return the loaded plug-ins, and the plug-ins of earlier stages; None without plug-ins."""
    plugins = {
        *loaded_plugins(),
        *(PluginRef(entry.module, entry.version, entry.sha256) for entry in earlier or ()),
    }
    return [PluginEntry(**plugin._asdict()) for plugin in sorted(plugins)] or None


class SparseSection(ManifestSection):
    """A section that is written without fields that are None.

    Stages set such a field to add it to the manifest, and to None to remove it.
    """

    @pydantic.model_serializer(mode="wrap")
    def _omit_missing_fields(
        self, handler: pydantic.SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        missing_names = {name for name, value in self.__dict__.items() if value is None}
        return {name: value for name, value in data.items() if name not in missing_names}


class SpecSection(SparseSection):
    """The options that determine the rows: sampling, and a section per later stage."""

    digest: str  #: Digest of the other fields.
    engine: EngineRef  #: The engine that sampled the solutions.
    grader: str  #: Full name of the grader.
    labels: str  #: Name of the rule that sets the column ``labels`` from outcomes.
    model: ArtifactRef  #: The policy that wrote the solutions.
    problems: dict[str, int | str]  #: ``count`` and ``digest`` of the problems.
    sampling: SamplingSection  #: Sampling parameters.
    segmenter: str  #: Full name of the segmenter.
    thinking: str | None = None  #: ``graded`` if the grader also reads unfinished thinking.
    search: SearchSection | None = None  #: Set if a search found the solutions.
    sources: list[SourceSection]  #: Files and datasets that the problems come from.
    template: TemplateRef  #: The prompt template.
    step_labels: StepLabelSection | None = None  #: Set by an import of step labels.
    score: ScoreSection | None = None  #: Set by the score stage.
    label: ManifestSection | None = None  #: Set by the label stage, which writes ``rollouts``.
    pair: PairSection | None = None  #: Set by the pair stage.
    grade: ManifestSection | None = None  #: Set by the grade stage.
    decontaminate: ManifestSection | None = None  #: Set by the decontaminate stage.
    select: ManifestSection | None = None  #: Set by the select stage.

    @property
    def labels_are_searched(self) -> bool:
        """Whether ``labels`` has the result of a search, and steps without rollouts are null."""
        return self.label is not None and "search" in (self.label.model_extra or {})

    @property
    def has_outcome_rewards(self) -> bool:
        """Whether only the rewards of last steps are trained, by an outcome reward model."""
        return self.score is not None and self.score.last_step_only

    @property
    def has_imported_pairs(self) -> bool:
        """Whether the pairs are imported, so that both sides end with the step that differs."""
        return self.pair is not None and self.pair.style == IMPORTED_STYLE

    @property
    def pair_aggregate(self) -> str:
        """The aggregate that ranks solutions if no other one is named."""
        return OUTCOME_AGGREGATE if self.has_outcome_rewards else PAIR_AGGREGATE

    @property
    def rewards_are_probabilities(self) -> bool:
        """Whether step rewards are probabilities, as from models of ``fsdpo-train prm``."""
        return self.reward_meaning == "probability"

    @property
    def reward_meaning(self) -> str:
        """The meaning of a step reward; ``probability`` without a PRM format or without scores."""
        prm_format = self.score.prm_format if self.score else None
        return prm_format.meaning if prm_format else "probability"

    def without_digest(self) -> dict[str, Any]:
        """Return the spec as JSON values, without its digest."""
        return {name: value for name, value in self.to_dict().items() if name != "digest"}


class RowCounts(ManifestSection):
    """The number of rows in each config of the dataset, as Hugging Face calls its tables."""

    problems: int  #: Rows of ``problems``.
    solutions: int  #: Rows of ``solutions``.
    pairs: int  #: Rows of ``pairs``.


class AccuracyStats(ManifestSection):
    """The accuracy of the graded solutions."""

    value: Number | None  #: Fraction of correct solutions; None without graded ones.
    correct: int  #: Correct solutions.
    n: int  #: Graded solutions.
    ci95: Interval | None  #: 95 % interval over problems; None without graded solutions.


class PassAtK(ManifestSection):
    """The fraction of problems with at least one correct solution."""

    value: Number | None  #: The fraction; None without graded problems.
    solved: int  #: Problems with a correct solution.
    n: int  #: Problems with a graded solution.
    ci95: Interval | None  #: 95 % interval over problems; None without graded problems.


class SolutionStats(ManifestSection):
    """Statistics of the solutions."""

    accuracy: AccuracyStats  #: Accuracy of the graded solutions.
    pass_at_k: PassAtK  #: pass@k over problems, where k is the number of samples.
    mixed_problems: int  #: Problems with correct and incorrect solutions.
    truncated: int  #: Solutions that reached ``max_tokens``.
    stopped_thoughts: int = 0  #: Other solutions without an end, which stopped in their thinking.
    unique_solutions: int  #: Distinct texts, counted per problem.
    tokens_per_second: Number | None  #: Sampled tokens per second; None without a time.


class ThinkingStats(ManifestSection):
    """Statistics of the solutions that contain thinking."""

    closed: int  #: Solutions whose thinking ended.
    unclosed: int  #: Solutions whose thinking did not end.


class CostStats(ManifestSection):
    """The cost of sampling and scoring, summed over the stages of the dataset."""

    tokens: int | Unknown  #: Sampled tokens.
    prm_calls: int  #: Solutions, and prefixes in a search, that a reward model scored.
    #: Time of sampling, in seconds, without grading; scoring is included only in a search.
    seconds: Number


class FileEntry(ManifestSection):
    """A parquet file of the dataset."""

    path: str  #: Path in the dataset, always ``config/name.parquet``.
    sha256: str  #: SHA-256 of the file.
    bytes: int  #: Size of the file, in bytes.
    rows: int  #: Number of rows.
    text_sha256: str | None = None  #: SHA-256 of the texts before segmentation; solutions only.

    @pydantic.field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        folder, _, name = path.partition("/")
        is_one_name = "/" not in name and "\\" not in name and name.isprintable()
        is_short = len(name.encode(errors="replace")) <= MAX_FILE_NAME_BYTES
        if folder not in CONFIGS or not is_one_name or not is_short or name[-8:] != ".parquet":
            raise ValueError(f"the path {path[:80]!r} is not of the form config/name.parquet")
        return path

    @classmethod
    def from_file(cls, root: Path, path: str, rows: int, text_sha256: str | None = None) -> Self:
        """Describe the finished file at ``path`` in the dataset directory ``root``."""
        file = root / path
        entry = cls(path=path, sha256=file_sha256(file), bytes=file.stat().st_size, rows=rows)
        if text_sha256 is not None:
            # Only an assigned field is written to the manifest.
            entry.text_sha256 = text_sha256
        return entry


class RankingStats(ManifestSection):
    """The ranking AUC of step rewards."""

    value: Number | None  #: Mean AUC over problems; None if no problem is mixed.
    problems: int  #: Problems with correct and incorrect solutions.
    ci95: Interval | None  #: 95 % interval over problems; None if no problem is mixed.


class RewardStats(ManifestSection):
    """Statistics of the step rewards; see :func:`fsdpo_data.stages.score.reward_statistics`."""

    scored: int  #: Solutions with rewards.
    unscored: int  #: Solutions that were too long for the reward model.
    mean_correct: Number | None  #: Mean reward of correct solutions.
    mean_incorrect: Number | None  #: Mean reward of incorrect solutions.
    ranking_auc: dict[str, RankingStats]  #: Ranking AUC by aggregate.
    #: How the PRM format was recognised; None for a reward model of ``fsdpo-train prm``.
    format_evidence: str | None = None

    @property
    def main_ranking(self) -> tuple[str, RankingStats]:
        """The aggregate that suits the reward model, and its ranking AUC."""
        name = OUTCOME_AGGREGATE if OUTCOME_AGGREGATE in self.ranking_auc else PAIR_AGGREGATE
        return name, self.ranking_auc[name]

    @pydantic.field_validator("ranking_auc")
    @classmethod
    def _check_ranking(cls, ranking_auc: dict[str, RankingStats]) -> dict[str, RankingStats]:
        if "mean" not in ranking_auc:
            raise ValueError("ranking_auc lacks mean")
        return ranking_auc


class ContinuationStats(ManifestSection):
    """The cost of the continuations of solution prefixes."""

    n: int  #: Continuations of each prefix.
    prefixes: int  #: Prefixes that were continued.
    continuations: int  #: Continuations in total.
    tokens: int | Unknown  #: Sampled tokens.
    seconds: Number  #: Time of sampling, in seconds.


class RolloutStats(ContinuationStats):
    """Statistics of the Monte-Carlo labels."""

    steps: int  #: Steps with a label.
    mean: Number | None  #: Mean label.
    label_disagreements: int  #: Steps whose rounded label differs from the outcome label.
    sampling_tokens: int | Unknown  #: Tokens that earlier stages sampled.
    #: Wrong solutions in which the first error was searched; None without a search.
    searched_solutions: int | None = None
    #: Searched solutions without labels, because a prefix has no graded continuation.
    undecided_solutions: int | None = None
    #: Continuations that labels of all steps would need in addition.
    saved_continuations: int | None = None


class JudgeStats(ContinuationStats):
    """Statistics of the judge's majority votes; see :mod:`fsdpo_data.stages.judge`.

    The inherited fields count prompts of the judge as prefixes, and critiques as continuations.
    """

    solutions: int  #: Judged solutions; the judge reads equal texts once.
    unreadable: int  #: Critiques without a readable vote.
    without_vote: int = 0  #: Solutions without a vote, which get no step labels.
    no_error: int = 0  #: Solutions in which the majority finds no error.
    ties: int = 0  #: Solutions with a tied vote; the vote of the earlier critique counts.
    correct_with_error: int = 0  #: Correct solutions in which the majority finds an error.
    #: Solutions that consensus filtering kept; None without consensus filtering.
    kept_solutions: int | None = pydantic.Field(default=None, alias="kept")
    #: Solutions that consensus filtering dropped; None without consensus filtering.
    dropped: int | None = None


class AnswerJudgeStats(ManifestSection):
    """The decisions of a judge about undecided answers, and its cost."""

    answers: int  #: Answers that the judge was asked about.
    correct: int  #: Answers that the judge decided as correct.
    incorrect: int  #: Answers that the judge decided as incorrect.
    undecided: int  #: Answers that stay undecided.
    unreadable: int  #: Undecided answers whose reply has no verdict that can be read.
    replies: int  #: Replies; equal prompts have one reply.
    tokens: int | Unknown  #: Tokens of the replies.
    seconds: Number  #: Time of the judge, in seconds.
    #: Accuracy of the graded solutions without the decisions of the judge; datasets only.
    accuracy_without_judge: AccuracyStats | None = None

    def describe_decisions(self) -> str:
        """Return the decisions as the part of a sentence, for the terminal."""
        return (
            f"judge was asked about {self.answers:,} undecided answers: {self.correct:,} correct, "
            f"{self.incorrect:,} incorrect, {self.undecided:,} still undecided "
            f"({self.unreadable:,} unreadable replies)"
        )


class StepLabelStats(ManifestSection):
    """Counts of imported step labels."""

    rows: int  #: Rows of the imported file.
    steps: int  #: Steps with a label.
    right: int  #: Steps with a label of at least 0.5.
    wrong: int  #: Other steps.


class LastSteps(ManifestSection):
    """Means over the last steps of one side of the pairs; the last step comes first."""

    n: list[int]  #: Number of steps at each position.
    reward: list[Number]  #: Mean reward.
    weight: list[Number]  #: Mean weight K·α of the paper's loss.


class StepWeightStats(ManifestSection):
    """The weights that the paper's loss gives to the last steps of pairs."""

    gamma: Number  #: Inverse temperature γ of the weights.
    chosen: LastSteps  #: The chosen side.
    rejected: LastSteps  #: The rejected side.


class PairStats(ManifestSection):
    """Statistics of the pairs; see :mod:`fsdpo_data.pairs.statistics`."""

    pairs: int  #: Number of pairs.
    problems: dict[str, int]  #: Problems by use, such as ``used`` or ``too_easy``.
    solutions: dict[str, int]  #: Solutions by use, such as ``chosen`` or ``truncated``.
    #: Statistics of the reward margins, such as ``mean``; None for Step-DPO.
    margin: dict[str, Number | None] | None = None
    #: Mean number of the first wrong step, from 1; None for pairs of complete solutions.
    first_error: Number | None = None
    length: dict[str, Number | None]  #: Lengths of the chosen and the rejected side.
    #: Rewards and weights of the last steps; None for Step-DPO, and if no solution has several.
    step_weights: StepWeightStats | None = None
    #: Cost of new steps (Step-DPO); None for imported pairs.
    resampled: ContinuationStats | None = None

    @pydantic.model_validator(mode="after")
    def _check_lengths(self) -> Self:
        unit = "tokens" if "chosen_tokens" in self.length else "characters"
        keys = {f"chosen_{unit}", f"rejected_{unit}"}
        if self.first_error is None:
            keys |= {"chosen_steps", "rejected_steps", "chosen_longer", "chosen_shorter"}
        if missing_keys := sorted(keys - self.length.keys()):
            raise ValueError(f"length lacks {', '.join(missing_keys)}")
        return self


class ContaminationStats(ManifestSection):
    """The overlap of the problems with benchmarks."""

    ngram: int  #: Length of the compared n-grams, in tokens.
    #: Minimum overlap of a contaminated problem; see :mod:`fsdpo_data.problems.overlap`.
    overlap: Number
    problems: int  #: Problems that were compared.
    contaminated: int  #: Problems that overlap with a benchmark.
    #: The benchmarks. Further fields, such as ``matched_questions``, count the matches.
    benchmarks: list[ArtifactRef]
    method: str  #: Definition of the overlap.


class RowStats(ManifestSection):
    """Statistics of the rows before or after a selection."""

    problems: int  #: Number of problems.
    solutions: int  #: Number of solutions.
    outcomes: dict[str, int]  #: Solutions by outcome.
    accuracy: AccuracyStats  #: Accuracy of the graded solutions.
    mixed_problems: int  #: Problems with correct and incorrect solutions.
    unique_solutions: int  #: Distinct texts, counted per problem.
    mean_steps: Number | None  #: Mean number of steps of a solution; None without solutions.
    mean_tokens: Number | None  #: Mean number of tokens, if known.


class FilterStats(ManifestSection):
    """The rows that a filter of a selection dropped."""

    name: str  #: Name of the filter, which is the option.
    problems: int  #: Dropped problems, also those without a solution that is left.
    solutions: int  #: Dropped solutions.


class SplitStats(ManifestSection):
    """The size of a split."""

    problems: int  #: Number of problems.
    solutions: int  #: Number of solutions.


class SelectionStats(SparseSection):
    """The rows of a selection from a dataset."""

    available: RowStats  #: The rows of the parent dataset.
    selected: RowStats  #: The selected rows; with splits, of all splits together.
    filters: list[FilterStats]  #: The dropped rows of each filter, in order.
    #: Problems without a graded solution, which have no pass rate; None without that filter.
    without_pass_rate: int | None = None
    splits: dict[str, SplitStats] | None = None  #: Size of each split; None without splits.


class RegradeStats(ManifestSection):
    """The outcomes that changed when another grader graded the solutions."""

    old_grader: str = pydantic.Field(alias="from")  #: Full name of the previous grader.
    new_grader: str = pydantic.Field(alias="to")  #: Full name of the new grader.
    changed: int  #: Solutions whose outcome changed.
    outcomes: list[list[str | int]]  #: Rows of (old outcome, new outcome, solutions).
