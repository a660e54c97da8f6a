"""The records of ``results.json``: the numbers of datasets, validated when made and when read.

Reports, cards and the Hub show these records. :meth:`Results.to_json` is the content of the file.
"""

import json
from pathlib import Path
from typing import Any, Final, Literal

import pydantic
from pydantic import ConfigDict, Field

from fsdpo_bench.run_folder import BenchmarkEntry
from fsdpo_data.core.cost import Cost
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.input_files import read_file
from fsdpo_data.core.options import FROM_FILE
from fsdpo_data.core.sampling import UNKNOWN
from fsdpo_data.core.statistics import Interval, Mean, MeanDifference
from fsdpo_data.dataset.stage_records import AnswerJudgeStats, GradeSettings, SampleSettings
from fsdpo_data.engines.scorers.prm_formats import ScoreSettings

#: Format version of ``results.json``. It increases when a field changes its meaning.
RESULTS_VERSION: Final = 2

Number = int | float  #: An integer stays an integer in the file.


class ResultSection(pydantic.BaseModel):
    """A part of the results."""

    model_config = ConfigDict(
        frozen=True, strict=True, allow_inf_nan=False, defer_build=True, populate_by_name=True
    )


class AccuracyDrop(ResultSection):
    """The loss of accuracy against the problems from which these problems derive."""

    drop: Number  #: Accuracy on the original problems minus accuracy on these problems.
    n: int  #: Pairs of an original and a derived problem.
    ci95: Interval  #: 95 % interval of the drop.

    @property
    def value(self) -> Number:
        """The drop."""
        return self.drop


class AccuracyResult(ResultSection):
    """An accuracy with its denominator and interval."""

    correct: Number  #: Correct answers; their sum of fractions for means over samples.
    n: int  #: Problems that count.
    accuracy: Number | None  #: Fraction of correct answers; None without problems.
    ci95: Interval | None  #: 95 % interval of the accuracy; None without problems.
    clusters: int | None  #: Number of base problems, if several problems share one.

    @property
    def value(self) -> Number | None:
        """The accuracy."""
        return self.accuracy


class SuiteResults(ResultSection):
    """The mean of several benchmarks with equal weights."""

    tasks: list[str]  #: Names of the benchmarks.
    decoders: dict[str, AccuracyResult]  #: Mean accuracies by decoder.


class CostResult(ResultSection):
    """The cost of a decoder over several problems."""

    tokens: Number | Literal["unknown"]  #: Generated tokens, discarded ones included.
    prm_calls: Number  #: Number of solutions and prefixes that the reward model scored.

    @property
    def is_known(self) -> bool:
        """Whether a number says something; recorded responses may have no costs at all."""
        return bool(self.tokens not in (0, UNKNOWN) or self.prm_calls)


class DecoderResults(AccuracyResult):
    """The results of a decoder on a benchmark."""

    #: Number of answers by outcome. Below the number of samples, these are means over subsets.
    outcomes: dict[str, Number]
    cost: CostResult  #: Cost over all problems.
    #: Accuracy without the tolerance of the benchmark; unset for benchmarks without a tolerance.
    strict: AccuracyResult | None = None
    #: Accuracy if all undecided answers and timeouts are correct; unset without such answers.
    upper_bound: AccuracyResult | None = None
    #: Accuracy if the answers that a judge decided are wrong; unset without such answers.
    without_judge: AccuracyResult | None = None
    #: Accuracy if these and the undecided answers are correct; unset without such answers.
    upper_bound_without_judge: AccuracyResult | None = None


class AccuracySpread(ResultSection):
    """The spread of the accuracies of the parts of a group."""

    parts: int  #: Number of parts.
    mean: Number  #: Mean of the accuracies.
    deviation: Number  #: Standard deviation of the accuracies.
    lowest: Number  #: Lowest accuracy.
    highest: Number  #: Highest accuracy.


class SelectedStrategy(ResultSection):
    """The best strategy of a reward model on each half of the problems, for the other half."""

    accuracy: Mean  #: Accuracy of both halves.
    ahead_of_vote: MeanDifference  #: Difference from the vote.
    p_holm: float | None  #: Its p-value, corrected for all reward models and N; None for N = 1.
    strategies: list[str]  #: Decoder and aggregate that were selected on each half.


class StepWeightDistance(ResultSection):
    """The distance of step weights from equal weights, as means over pairs."""

    from_uniform: float  #: Total variation distance from 1/K.
    max_over_uniform: float  #: K times the largest weight.


class PairWeights(ResultSection):
    """The preference pairs that step rewards would select, and their step weights."""

    pairs: int  #: Number of pairs.
    problems: int  #: Number of problems with pairs.
    margin: (
        float | None
    )  #: Mean reward of the chosen minus the rejected solution; None for 0 pairs.
    #: By γ and side (``chosen`` or ``rejected``); None if no solution of a side has two steps.
    weights: dict[str, dict[str, StepWeightDistance | None]]


class TaskResults(ResultSection):
    """The results of a benchmark, with one more key for each registered number.

    The inner keys of ``groups`` and ``accuracy_drops`` are decoders. Their outer keys are groups,
    such as ``level``, and the labels within a group.
    """

    model_config = ConfigDict(extra="allow")

    title: str  #: Title of the benchmark.
    problems: int  #: Problems that were measured.
    task_problems: int | None  #: Problems of the complete benchmark; None if unknown.
    samples: int  #: Samples per problem.
    mixed_problems: int  #: Problems with correct and incorrect samples.
    decoders: dict[str, DecoderResults]  #: Results by decoder.
    groups: dict[str, dict[str, dict[str, AccuracyResult]]]  #: By group, label and decoder.
    group_spread: dict[str, AccuracySpread]  #: Spread over the parts of a group, by decoder.
    accuracy_drops: dict[str, dict[str, dict[str, AccuracyDrop]]]  #: By group, label and decoder.
    failed: int | None = None  #: Problems that a dataset lacks, which do not count; None for 0.
    left_out: int | None = None  #: Problems with fewer samples, which do not count; None for 0.
    #: Difference from the vote of as many samples, by decoder with a reward model.
    ahead_of_vote: dict[str, MeanDifference] = {}
    #: Difference of best-of-N from best-of-N by ``min``, by decoder.
    ahead_of_min: dict[str, MeanDifference] = {}
    #: The strategy that halves of the problems select, by reward model and N.
    selected: dict[str, dict[str, SelectedStrategy]] = {}
    __pydantic_extra__: dict[str, dict[str, AccuracyResult]]

    @property
    def numbers(self) -> dict[str, dict[str, AccuracyResult]]:
        """The values of each report number, by its name and key, such as ``pass_at_k`` and 4."""
        return self.__pydantic_extra__


class RewardBin(ResultSection):
    """The steps whose rewards are in one interval."""

    low: Number = Field(alias="from")  #: Lower bound of the rewards.
    high: Number = Field(alias="to")  #: Upper bound of the rewards.
    steps: int  #: Steps in the bin.
    problems: int | None  #: Problems of these steps.
    reward: Number  #: Mean reward.
    correct: Number  #: Fraction of the steps in correct solutions.
    ci95: Interval  #: 95 % interval of this fraction.

    @property
    def value(self) -> Number:
        """The fraction of the steps in correct solutions."""
        return self.correct


class Calibration(ResultSection):
    """The fraction of steps in correct solutions by reward."""

    bins: list[RewardBin]  #: Bins with steps.
    expected_error: Number  #: Mean distance of reward and fraction, weighted by steps.


class RewardDistribution(ResultSection):
    """The numbers of solutions by bin of their reward."""

    aggregate: str  #: Aggregate of the step rewards.
    correct: list[int]  #: Correct solutions by bin.
    wrong: list[int]  #: Wrong solutions by bin.


class StepReward(ResultSection):
    """The rewards of all steps with one number."""

    reward: Number  #: Mean reward.
    steps: int  #: Number of steps.


class RewardsByStep(ResultSection):
    """The mean rewards by the number of the step; None for numbers without steps."""

    correct: list[StepReward | None]  #: Steps of correct solutions.
    wrong: list[StepReward | None]  #: Steps of wrong solutions.


class RewardQuality(ResultSection):
    """Aggregated rewards as probabilities of a correct solution."""

    expected_error: Number  #: Expected calibration error, in bins of equal width.
    brier: Number  #: Mean squared error.
    constant_brier: Number  #: Mean squared error of a constant prediction of the accuracy.


class RewardStatistics(ResultSection):
    """The statistics of the step rewards of one reward model."""

    solutions: int  #: Solutions with rewards.
    correct: int  #: Correct solutions among them.
    #: Aggregate of decoders that choose by these rewards, if no other one is named.
    default_aggregate: str
    calibration: Calibration  #: Correctness by reward.
    distribution: RewardDistribution  #: Solutions by reward.
    by_step: RewardsByStep  #: Rewards by step.
    ranking_auc: dict[str, Mean]  #: Ranking AUC by aggregate, a mean over problems.
    #: Calibration by aggregate; None if the rewards are not probabilities.
    quality: dict[str, RewardQuality] | None
    #: The pairs that the rewards would select; None if no γ is given.
    pairs: PairWeights | None = None


class MeasuredDataset(ResultSection):
    """A dataset that was measured."""

    digest: str  #: Digest of the dataset.
    sample: SampleSettings  #: Everything that determines the samples.
    cost: Cost  #: Cost of sampling and scoring.


class MeasurementSettings(ResultSection):
    """The datasets of a measurement, and the options of their stages."""

    sample: SampleSettings  #: Everything that determines the samples that decoders share.
    grade: GradeSettings  #: Everything that determines the outcomes.
    reward_models: dict[str, ScoreSettings]  #: Reward models by name.
    decoders: list[str]  #: Result names of the decoders.
    #: The benchmarks of a run of ``fsdpo-bench run``; empty for other datasets.
    benchmarks: dict[str, BenchmarkEntry]
    datasets: dict[
        str, MeasuredDataset
    ]  #: The datasets: the parts of a run, or one per reward model.


class Results(ResultSection):
    """The content of ``results.json``."""

    version: Literal[2]  #: Format version, :data:`RESULTS_VERSION`.
    run: MeasurementSettings  #: The datasets and their settings.
    tasks: dict[str, TaskResults]  #: Results by benchmark.
    suites: dict[str, SuiteResults]  #: Mean results by suite.
    cost: dict[str, CostResult]  #: Cost over all benchmarks, by decoder.
    rewards: dict[str, RewardStatistics]  #: Statistics of the step rewards by reward model.
    #: Decisions and cost of the judge of undecided answers; unset without a judge.
    answer_judge: AnswerJudgeStats | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file, without values that were never set."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def to_text(self) -> str:
        """Return the text of the file."""
        return json.dumps(self.to_json(), indent=1) + "\n"


def read_results(file: Path) -> Results:
    """Read a file of results.

    Raises:
        InputError: if the file is not a ``results.json`` of this release.
    """
    try:
        return Results.model_validate_json(read_file(file), context=FROM_FILE)
    except (OSError, pydantic.ValidationError) as error:
        raise InputError(
            f"{file}: expected results that `fsdpo-bench run` wrote ({error}). Write them again "
            "with `fsdpo-bench report`."
        ) from error
