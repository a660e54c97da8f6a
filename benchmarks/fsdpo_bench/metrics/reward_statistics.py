"""Statistics of step rewards: ranking within problems, calibration, and rewards by step.

Array suffixes: ``P`` problems, ``M`` samples of a problem, ``N`` samples with rewards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from fsdpo_bench.metrics.pair_weights import pair_weights
from fsdpo_bench.metrics.result_records import (
    Calibration,
    RewardBin,
    RewardDistribution,
    RewardQuality,
    RewardsByStep,
    RewardStatistics,
    StepReward,
)
from fsdpo_bench.metrics.sample_arrays import Samples, shared_clusters
from fsdpo_data.core.lazy import np
from fsdpo_data.core.statistics import mean_rate, ranking_auc
from fsdpo_data.steps.rewards import AGGREGATES, REWARD_PRECISION

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

REWARD_BINS = 10  #: Bins of a reward in [0, 1].
MAX_STEP_NUMBER = 12  #: Last step number of the statistics by step; it includes later steps.


class RewardedSample(NamedTuple):
    """A sample with step rewards, of a problem that counts."""

    problem: int  #: Number of the problem.
    cluster: str  #: Cluster of the problem.
    steps: Sequence[float]  #: One reward per step.
    is_correct: bool  #: Whether the answer is correct.


def reward_statistics(
    model: str, benchmarks: Sequence[Samples], gammas: Sequence[float] = ()
) -> RewardStatistics | None:
    """Return the statistics of one reward model over benchmarks; None without rewards.

    Undecided answers and timeouts count as wrong.

    Args:
        model: Name of the reward model.
        benchmarks: The samples of each benchmark.
        gammas: Values of γ, for the step weights of pairs; empty to select no pairs.
    """
    scored = [samples for samples in benchmarks if model in samples.rewards]
    rewarded = _rewarded_samples(model, scored)
    if not rewarded:
        return None
    problems = [sample.problem for sample in rewarded]
    clusters = [sample.cluster for sample in rewarded] if _has_shared_clusters(scored) else None
    is_correct = [sample.is_correct for sample in rewarded]
    values = {name: _aggregated_rewards(model, scored, name) for name in AGGREGATES}
    are_probabilities = all(samples.rewards[model].are_probabilities for samples in scored)
    default_aggregate = scored[0].rewards[model].default_aggregate
    return RewardStatistics(
        solutions=len(rewarded),
        correct=sum(is_correct),
        default_aggregate=default_aggregate,
        calibration=_calibration(rewarded) if are_probabilities else None,
        distribution=(
            _distribution(default_aggregate, values[default_aggregate], is_correct)
            if are_probabilities
            else None
        ),
        by_step=RewardsByStep(
            correct=_mean_rewards_by_step([s.steps for s in rewarded if s.is_correct]),
            wrong=_mean_rewards_by_step([s.steps for s in rewarded if not s.is_correct]),
        ),
        ranking_auc={
            name: ranking_auc(problems, rewards_N, is_correct, clusters)
            for name, rewards_N in values.items()
        },
        quality=(
            {name: reward_quality(rewards_N, is_correct) for name, rewards_N in values.items()}
            if are_probabilities
            else None
        ),
        pairs=(
            pair_weights(
                scored[0].rewards[model].root,
                [
                    benchmark_problem.problem_id
                    for samples in scored
                    for benchmark_problem in samples.problems
                ],
                gammas,
            )
            if gammas
            else None
        ),
    )


def count_unscored(samples: Samples) -> dict[str, int]:
    """Return the number of samples without a reward, by reward model that lacks some."""
    return {model: n for model, rewards in samples.rewards.items() if (n := rewards.unscored)}


def describe_unscored(unscored: Mapping[str, int], n_samples: int) -> list[str]:
    """Say for each reward model how many samples have no reward, and how decoders treat them.

    Args:
        unscored: Number of samples without a reward, by reward model.
        n_samples: Number of all samples of the benchmark.
    """
    return [
        f"no sample has a reward by {model}, so no decoder chooses by its rewards"
        if count == n_samples
        else f"{count:,} of {n_samples:,} samples have no reward by {model}: best-of-N takes them "
        "last, and they have no weight in votes"
        for model, count in unscored.items()
    ]


def _rewarded_samples(model: str, benchmarks: Sequence[Samples]) -> list[RewardedSample]:
    """Return the samples with rewards of the problems that count, problem by problem."""
    rewarded = []
    problem = 0
    for samples in benchmarks:
        steps = samples.rewards[model].steps
        for index in np.flatnonzero(samples.counts_P).tolist():
            problem += 1
            cluster = samples.problems[index].cluster
            for step_rewards, is_correct in zip(
                steps[index], samples.is_correct_PM[index].tolist(), strict=True
            ):
                if step_rewards:
                    rewarded.append(RewardedSample(problem, cluster, step_rewards, is_correct))
    return rewarded


def _has_shared_clusters(benchmarks: Sequence[Samples]) -> bool:
    """Return whether problems that count share a base, or occur twice."""
    problems = [
        samples.problems[index]
        for samples in benchmarks
        for index in np.flatnonzero(samples.counts_P)
    ]
    return shared_clusters(problems) is not None


def _aggregated_rewards(model: str, benchmarks: Sequence[Samples], aggregate: str) -> np.ndarray:
    """Return the aggregated rewards of these samples, in the same order."""
    parts = []
    for samples in benchmarks:
        reward_N = samples.rewards[model].by_aggregate[aggregate][samples.counts_P].ravel()
        parts.append(reward_N[~np.isnan(reward_N)])
    return np.concatenate(parts)


def _bin_indices(rewards_N: ArrayLike) -> np.ndarray:
    """Return the bin of each reward in [0, 1]. A bin includes its lower bound.

    Rewards are stored in 32 bits, and the stored 0.7 is below 0.7. So a reward within the precision
    below a bound counts as the bound.
    """
    bin_N: np.ndarray = ((np.asarray(rewards_N) + REWARD_PRECISION) * REWARD_BINS).astype(int)
    return bin_N.clip(max=REWARD_BINS - 1)


def _distribution(
    aggregate: str, rewards_N: np.ndarray, is_correct: Sequence[bool]
) -> RewardDistribution:
    """Return the numbers of correct and of wrong samples by their aggregated reward."""
    bin_N = _bin_indices(rewards_N)
    correct_N = np.asarray(is_correct, dtype=bool)
    return RewardDistribution(
        aggregate=aggregate,
        correct=np.bincount(bin_N[correct_N], minlength=REWARD_BINS).tolist(),
        wrong=np.bincount(bin_N[~correct_N], minlength=REWARD_BINS).tolist(),
    )


def reward_quality(rewards_N: np.ndarray, is_correct: Sequence[bool]) -> RewardQuality:
    """Compare rewards in [0, 1] with the outcomes of the samples."""
    correct_N = np.asarray(is_correct, dtype=float)
    bin_N = _bin_indices(rewards_N)
    error = 0.0
    for number in np.unique(bin_N):
        is_in_bin_N = bin_N == number
        gap = rewards_N[is_in_bin_N].mean() - correct_N[is_in_bin_N].mean()
        error += abs(float(gap)) * float(is_in_bin_N.mean())
    accuracy = float(correct_N.mean())
    return RewardQuality(
        expected_error=error,
        brier=float(((rewards_N - correct_N) ** 2).mean()),
        constant_brier=accuracy * (1 - accuracy),
    )


class _BinnedStep(NamedTuple):
    """A step of a sample."""

    is_correct: bool  #: Whether the solution of the step is correct.
    cluster: str  #: Cluster of the problem.
    reward: float  #: Reward of the step.


def _calibration(samples: Sequence[RewardedSample]) -> Calibration:
    """Compare step rewards with the fraction of correct solutions.

    A reward model trained on outcomes predicts this fraction. Steps of one problem are not
    independent, so the intervals are over problems, or over base problems.
    """
    steps_by_bin: dict[int, list[_BinnedStep]] = defaultdict(list)
    for _, cluster, steps, is_correct in samples:
        for index, reward in zip(_bin_indices(steps).tolist(), steps, strict=True):
            steps_by_bin[index].append(_BinnedStep(is_correct, cluster, reward))
    bins = [_bin_statistics(index, steps) for index, steps in sorted(steps_by_bin.items())]
    n_steps = sum(entry.correct.n for entry in bins)
    # Each term is the number of steps times the distance of mean reward and fraction.
    weighted_gaps = sum(abs(entry.correct.n * entry.reward - entry.correct.total) for entry in bins)
    return Calibration(bins=bins, expected_error=weighted_gaps / n_steps)


def _bin_statistics(index: int, steps: Sequence[_BinnedStep]) -> RewardBin:
    """Return the statistics of one bin of step rewards."""
    return RewardBin(
        low=index / REWARD_BINS,
        high=(index + 1) / REWARD_BINS,
        reward=sum(step.reward for step in steps) / len(steps),
        correct=mean_rate([step.is_correct for step in steps], [step.cluster for step in steps]),
    )


def _mean_rewards_by_step(step_rewards: Sequence[Sequence[float]]) -> list[StepReward | None]:
    """Return the mean reward by step number; None for numbers without steps."""
    rewards_by_number: list[list[float]] = [[] for _ in range(MAX_STEP_NUMBER)]
    for rewards in step_rewards:
        for number, reward in enumerate(rewards):
            rewards_by_number[min(number, MAX_STEP_NUMBER - 1)].append(reward)
    return [
        StepReward(reward=fmean(rewards), steps=len(rewards)) if rewards else None
        for rewards in rewards_by_number
    ]
