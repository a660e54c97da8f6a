"""The records of ``results.json``: the numbers of a run, validated when they are made and read.

Reports, cards and the Hub show these records. :meth:`Results.to_json` is the content of the file.
"""

import json
from pathlib import Path
from typing import Any, Final, Literal

import pydantic
from pydantic import ConfigDict, Field

from fsdpo_bench.runs.records import RunConfig
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.input_files import read_file
from fsdpo_data.core.sampling import UNKNOWN
from fsdpo_data.core.statistics import Interval, Mean
from fsdpo_data.dataset.build_records import AnswerJudgeStats

RESULTS_FILE = "results.json"  #: Name of the file in the directory of a run.
#: Format version of ``results.json``. It increases when a field changes its meaning.
RESULTS_VERSION: Final = 1

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
    seconds: Number  #: Time of the sampler and the scorer.

    @property
    def is_known(self) -> bool:
        """Whether a number says something; recorded responses may have no costs at all."""
        return bool(self.tokens not in (0, UNKNOWN) or self.prm_calls or self.seconds)


class DecoderResults(AccuracyResult):
    """The results of a decoder on a benchmark."""

    outcomes: dict[str, int]  #: Number of answers by outcome.
    cost: CostResult  #: Cost over all problems.
    #: Accuracy without the tolerance of the benchmark; unset for benchmarks without a tolerance.
    strict: AccuracyResult | None = None
    #: Accuracy if all undecided answers are correct; unset without undecided answers.
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


class TaskResults(ResultSection):
    """The results of a benchmark, with one more key for each number of ``results.numbers``.

    The inner keys of ``groups`` and ``accuracy_drops`` are decoders. Their outer keys are groups,
    such as ``level``, and the labels within a group.
    """

    model_config = ConfigDict(extra="allow")

    title: str  #: Title of the benchmark.
    problems: int  #: Problems of the run.
    task_problems: int | None  #: Problems of the complete benchmark; None if unknown.
    decoders: dict[str, DecoderResults]  #: Results by decoder.
    groups: dict[str, dict[str, dict[str, AccuracyResult]]]  #: By group, label and decoder.
    group_spread: dict[str, AccuracySpread]  #: Spread over the parts of a group, by decoder.
    accuracy_drops: dict[str, dict[str, dict[str, AccuracyDrop]]]  #: By group, label and decoder.
    failed: int | None = None  #: Problems that an engine refused, which do not count; None for 0.
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


class RewardStatistics(ResultSection):
    """The statistics of the step rewards of a run."""

    solutions: int  #: Solutions with rewards.
    correct: int  #: Correct solutions among them.
    calibration: Calibration  #: Correctness by reward.
    distribution: RewardDistribution  #: Solutions by reward.
    by_step: RewardsByStep  #: Rewards by step.
    ranking_auc: dict[str, Mean]  #: Ranking AUC by aggregate, a mean over problems.


class Results(ResultSection):
    """The content of ``results.json``."""

    version: Literal[1]  #: Format version, :data:`RESULTS_VERSION`.
    run: RunConfig  #: The settings that determine the output.
    tasks: dict[str, TaskResults]  #: Results by benchmark.
    suites: dict[str, SuiteResults]  #: Mean results by suite.
    cost: dict[str, CostResult]  #: Cost over all benchmarks, by decoder.
    rewards: RewardStatistics | None  #: Statistics of the step rewards; None without rewards.
    #: Decisions and cost of the judge of undecided answers; unset without a judge.
    answer_judge: AnswerJudgeStats | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file, without values that were never set."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def to_text(self) -> str:
        """Return the text of the file."""
        return json.dumps(self.to_json(), indent=1) + "\n"


def read_results(file: Path) -> Results:
    """Read the results of a run.

    Raises:
        InputError: if the file is not a ``results.json`` of this release.
    """
    try:
        return Results.model_validate_json(read_file(file))
    except (OSError, pydantic.ValidationError) as error:
        raise InputError(
            f"{file}: expected results that `fsdpo-bench run` wrote ({error}). Write them again "
            "with `fsdpo-bench report`."
        ) from error
