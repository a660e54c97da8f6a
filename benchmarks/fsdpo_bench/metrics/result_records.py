"""The records of ``results.json``: the numbers of datasets, validated when made and when read.

Reports, cards and the Hub show these records. :meth:`Results.to_json` is the content of the file.
"""

import json
from pathlib import Path
from typing import Any, Literal

import pydantic
from pydantic import ConfigDict

from fsdpo_bench.run_folder import BenchmarkEntry, read_record
from fsdpo_data.core.cost import Cost
from fsdpo_data.core.statistics import Mean, MeanDifference
from fsdpo_data.dataset.stage_records import AnswerJudgeStats, GradeSettings, SampleSettings
from fsdpo_data.engines.scorers.prm_formats import ScoreSettings


class ResultSection(pydantic.BaseModel):
    """A part of the results."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False, defer_build=True)


class SuiteResults(ResultSection):
    """The mean of several benchmarks with equal weights."""

    tasks: list[str]  #: Names of the benchmarks.
    accuracies: dict[str, Mean]  #: Mean accuracies by decoder.


class DecoderResults(ResultSection):
    """The results of a decoder on a benchmark. Accuracies are means over problems."""

    accuracy: Mean  #: Accuracy; undecided answers and timeouts are wrong.
    #: Number of answers by outcome. Below the number of samples, these are means over subsets.
    outcomes: dict[str, int | float]
    cost: Cost  #: Cost over all problems; a problem with several rows costs once.
    #: Accuracy without the tolerance of the benchmark; unset for benchmarks without a tolerance.
    exactly_correct: Mean | None = None
    #: Accuracy if all undecided answers and timeouts are correct; unset without such answers.
    upper_bound: Mean | None = None
    #: Accuracy if the answers that a judge decided are wrong; unset without such answers.
    without_judge: Mean | None = None
    #: Accuracy if these and the undecided answers are correct; unset without such answers.
    upper_bound_without_judge: Mean | None = None


class AccuracySpread(ResultSection):
    """The spread of the accuracies of the parts of a group."""

    parts: int  #: Number of parts.
    mean: float  #: Mean of the accuracies.
    deviation: float  #: Standard deviation of the accuracies.
    lowest: float  #: Lowest accuracy.
    highest: float  #: Highest accuracy.


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
    """The preference pairs that step rewards would select, and their step weights.

    A problem gives its pairs once, also if it has several rows in benchmarks.
    """

    top: int  #: Best and worst solutions per problem that form pairs.
    aggregate: str  #: Aggregate of the step rewards that ranks solutions.
    pairs: int  #: Number of pairs.
    problems: int  #: Number of problems with pairs.
    #: Mean reward of the chosen minus the rejected solution; None for 0 pairs.
    margin: float | None
    #: By γ and side (``chosen`` or ``rejected``); None if no solution of a side has two steps.
    weights: dict[str, dict[str, StepWeightDistance | None]]


class TaskResults(ResultSection):
    """The results of a benchmark.

    The inner keys of ``groups`` and ``accuracy_drops`` are decoders. Their outer keys are groups,
    such as ``level``, and the labels within a group.
    """

    title: str  #: Title of the benchmark.
    problems: int  #: Problems that were measured; one with several rows counts for each of them.
    distinct_problems: int  #: The same with each problem counted once, as costs count them.
    task_problems: int | None  #: Problems of the complete benchmark; None if unknown.
    samples: int  #: Samples per problem.
    mixed_problems: int  #: Problems with correct and incorrect samples.
    decoders: dict[str, DecoderResults]  #: Results by decoder.
    #: The registered numbers, by name and key, such as ``pass_at_k`` and 4; empty without samples.
    numbers: dict[str, dict[str, Mean]]
    groups: dict[str, dict[str, dict[str, Mean]]]  #: Accuracy by group, label and decoder.
    group_spread: dict[str, AccuracySpread]  #: Spread over the parts of a group, by decoder.
    #: Accuracy on the original problems minus accuracy on the problems that derive from them, by
    #: group, label and decoder.
    accuracy_drops: dict[str, dict[str, dict[str, MeanDifference]]]
    failed: int | None = None  #: Problems that a dataset lacks, which do not count; None for 0.
    left_out: int | None = None  #: Problems with fewer samples, which do not count; None for 0.
    unscored: dict[str, int] = {}  #: Samples without a reward, by reward model that lacks some.
    #: Difference from the vote of as many samples, by decoder with a reward model.
    ahead_of_vote: dict[str, MeanDifference] = {}
    #: Difference from the same decoder by ``min``, by decoder; for best-of-N.
    ahead_of_min: dict[str, MeanDifference] = {}
    #: The strategy that halves of the problems select, by reward model and N.
    selected: dict[str, dict[str, SelectedStrategy]] = {}

    @property
    def accuracies(self) -> dict[str, Mean]:
        """The accuracy of each decoder."""
        return {name: results.accuracy for name, results in self.decoders.items()}


class RewardBin(ResultSection):
    """The steps whose rewards are in one interval."""

    low: float  #: Lower bound of the rewards.
    high: float  #: Upper bound of the rewards.
    reward: float  #: Mean reward.
    correct: Mean  #: Fraction of the steps in correct solutions, with problems as clusters.


class Calibration(ResultSection):
    """The fraction of steps in correct solutions by reward."""

    bins: list[RewardBin]  #: Bins with steps.
    expected_error: float  #: Mean distance of reward and fraction, weighted by steps.


class RewardDistribution(ResultSection):
    """The numbers of solutions by bin of their reward."""

    aggregate: str  #: Aggregate of the step rewards.
    correct: list[int]  #: Correct solutions by bin.
    wrong: list[int]  #: Wrong solutions by bin.


class StepReward(ResultSection):
    """The rewards of all steps with one number."""

    reward: float  #: Mean reward.
    steps: int  #: Number of steps.


class RewardsByStep(ResultSection):
    """The mean rewards by the number of the step; None for numbers without steps."""

    correct: list[StepReward | None]  #: Steps of correct solutions.
    wrong: list[StepReward | None]  #: Steps of wrong solutions.


class RewardQuality(ResultSection):
    """Aggregated rewards as probabilities of a correct solution."""

    expected_error: float  #: Expected calibration error, in bins of equal width.
    brier: float  #: Mean squared error.
    constant_brier: float  #: Mean squared error of a constant prediction of the accuracy.


class RewardStatistics(ResultSection):
    """The statistics of the step rewards of one reward model.

    All counts and means except ``pairs`` count a problem once for each of its rows in benchmarks.
    """

    solutions: int  #: Solutions with rewards.
    correct: int  #: Correct solutions among them.
    #: Aggregate of decoders that choose by these rewards, if no other one is named.
    default_aggregate: str
    #: Correctness by reward; None if the rewards are not probabilities.
    calibration: Calibration | None
    #: Solutions by reward; None if the rewards are not probabilities.
    distribution: RewardDistribution | None
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
    #: The datasets: the parts of a run, or one per reward model.
    datasets: dict[str, MeasuredDataset]


class Results(ResultSection):
    """The content of ``results.json``."""

    version: Literal[3]  #: Version of the format, :data:`~fsdpo_bench.run_folder.FORMAT_VERSION`.
    run: MeasurementSettings  #: The datasets and their settings.
    tasks: dict[str, TaskResults]  #: Results by benchmark.
    suites: dict[str, SuiteResults]  #: Mean results by suite.
    cost: dict[str, Cost]  #: Cost over all benchmarks, by decoder.
    rewards: dict[str, RewardStatistics]  #: Statistics of the step rewards by reward model.
    #: Decisions and cost of the judge of undecided answers; unset without a judge.
    answer_judge: AnswerJudgeStats | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file, without values that were never set."""
        return self.model_dump(mode="json", exclude_unset=True)

    def to_text(self) -> str:
        """Return the text of the file."""
        return json.dumps(self.to_json(), indent=1) + "\n"


def read_results(file: Path) -> Results:
    """Read a file of results.

    Raises:
        InputError: if the file is not a ``results.json`` of this release.
    """
    return read_record(file, Results)
