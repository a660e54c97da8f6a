"""The types of ``results.json``, for type checkers."""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from fsdpo_bench.results.outcomes import Amount

Costs = dict[str, Amount]  #: Amounts by ``tokens``, ``prm_calls`` and ``seconds``.


class AccuracyDrop(TypedDict):
    """The loss of accuracy against the problems from which these problems derive."""

    drop: float  #: Accuracy on the original problems minus accuracy on these problems.
    n: int  #: Pairs of an original and a derived problem.
    ci95: list[float]  #: 95 % interval of the drop.


class AccuracyResult(TypedDict):
    """An accuracy with its denominator and interval."""

    correct: float  #: Correct answers; their sum of fractions for means over samples.
    n: int  #: Problems that count.
    accuracy: float | None  #: Fraction of correct answers; None without problems.
    ci95: list[float] | None  #: 95 % interval of the accuracy; None without problems.
    clusters: int | None  #: Number of base problems, if several problems share one.


class SuiteResults(TypedDict):
    """The mean of several benchmarks with equal weights."""

    tasks: list[str]  #: Names of the benchmarks.
    decoders: dict[str, AccuracyResult]  #: Mean accuracies by decoder.


class DecoderResults(AccuracyResult):
    """The results of a decoder on a benchmark."""

    #: Accuracy without the tolerance of the benchmark; only for benchmarks with a tolerance.
    strict: NotRequired[AccuracyResult]
    outcomes: dict[str, int]  #: Number of answers by outcome.
    cost: Costs  #: Cost over all problems.


class TaskResults(TypedDict):
    """The results of a benchmark, with one key for each number of ``results.numbers``.

    The inner keys of ``groups``, ``group_spread`` and ``accuracy_drops`` are decoders. Their outer
    keys are groups, such as ``level``, and the labels within a group.
    """

    title: str  #: Title of the benchmark.
    problems: int  #: Problems of the run.
    task_problems: int  #: Problems of the complete benchmark.
    decoders: dict[str, DecoderResults]  #: Results by decoder.
    groups: dict[str, dict[str, dict[str, AccuracyResult]]]  #: By group, label and decoder.
    group_spread: dict[str, dict[str, float]]  #: Spread of the accuracy over the parts of a group.
    accuracy_drops: dict[str, dict[str, dict[str, AccuracyDrop]]]  #: By group, label and decoder.
    avg_at_k: dict[str, AccuracyResult]  #: avg@k by k.
    pass_at_k: dict[str, AccuracyResult]  #: pass@k by k.
    maj_at_k: dict[str, AccuracyResult]  #: maj@k by k.


RewardBin = TypedDict(
    "RewardBin",
    {
        "from": float,  # lower bound of the rewards
        "to": float,  # upper bound of the rewards
        "steps": int,  # steps in the bin
        "problems": int | None,  # problems of these steps
        "reward": float,  # mean reward
        "correct": float,  # fraction of the steps in correct solutions
        "ci95": list[float],  # 95 % interval of this fraction
    },
)


class Calibration(TypedDict):
    """The fraction of steps in correct solutions by reward."""

    bins: list[RewardBin]  #: Bins with steps.
    expected_error: float  #: Mean distance of reward and fraction, weighted by steps.


class RewardDistribution(TypedDict):
    """The numbers of solutions by bin of their reward."""

    aggregate: str  #: Aggregate of the step rewards.
    correct: list[int]  #: Correct solutions by bin.
    wrong: list[int]  #: Wrong solutions by bin.


class StepReward(TypedDict):
    """The rewards of all steps with one number."""

    reward: float  #: Mean reward.
    steps: int  #: Number of steps.


class RewardsByStep(TypedDict):
    """The mean rewards by the number of the step; None for numbers without steps."""

    correct: list[StepReward | None]  #: Steps of correct solutions.
    wrong: list[StepReward | None]  #: Steps of wrong solutions.


class RewardStatistics(TypedDict):
    """The statistics of the step rewards of a run."""

    solutions: int  #: Solutions with rewards.
    correct: int  #: Correct solutions among them.
    calibration: Calibration  #: Correctness by reward.
    distribution: RewardDistribution  #: Solutions by reward.
    by_step: RewardsByStep  #: Rewards by step.
    ranking_auc: dict[str, dict[str, Any]]  #: Ranking AUC by aggregate.


class Results(TypedDict):
    """The content of ``results.json``."""

    version: int  #: Format version, :data:`~fsdpo_bench.results.summary.RESULTS_VERSION`.
    run: Mapping[str, Any]  #: The settings that determine the output.
    tasks: dict[str, TaskResults]  #: Results by benchmark.
    suites: dict[str, SuiteResults]  #: Mean results by suite.
    cost: dict[str, Costs]  #: Cost over all benchmarks, by decoder.
    rewards: RewardStatistics | None  #: Statistics of the step rewards; None without rewards.
