"""Summarise the records of a run as ``results.json``, with denominators and intervals."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from fsdpo_bench.decode.records import ProblemRecord
from fsdpo_bench.decode.solution import DecodingCost
from fsdpo_bench.results.numbers import NUMBERS, decoder_accuracy
from fsdpo_bench.results.outcomes import ProblemResult, read_problem_results
from fsdpo_bench.results.result_types import (
    RESULTS_VERSION,
    AccuracyDrop,
    AccuracyResult,
    AccuracySpread,
    Calibration,
    CostResult,
    DecoderResults,
    Results,
    RewardBin,
    RewardDistribution,
    RewardsByStep,
    RewardStatistics,
    StepReward,
    SuiteResults,
    TaskResults,
)
from fsdpo_bench.runs.records import RunConfig, TaskConfig
from fsdpo_bench.tasks.table import suites
from fsdpo_data.core.entities import UNDECIDED
from fsdpo_data.core.sampling import UNKNOWN
from fsdpo_data.core.statistics import (
    Interval,
    Mean,
    macro_interval,
    mean_difference,
    mean_rate,
    ranking_auc,
)
from fsdpo_data.dataset.build_records import AnswerJudgeStats
from fsdpo_data.steps.rewards import AGGREGATES, aggregate


def summarise(
    records: Iterable[ProblemRecord],
    config: RunConfig,
    judge_stats: AnswerJudgeStats | None = None,
    failed: Mapping[str, int] | None = None,
) -> Results:
    """Summarise the records of a complete run as the content of ``results.json``.

    Args:
        records: All records of the run.
        config: The config of the run; it becomes ``run`` in the results.
        judge_stats: Counts and cost of the judge of undecided answers; None without a judge.
        failed: Number of failed problems, by benchmark.
    """
    failed = failed or {}
    optional_sections = {} if judge_stats is None else {"answer_judge": judge_stats}
    rewarded_samples: list[RewardedSample] = []
    results = read_problem_results(collect_rewarded_samples(records, rewarded_samples))
    tasks = {
        name: _task_results(task_results, config.tasks[name], results, failed.get(name, 0))
        for name, task_results in results.items()
    }
    return Results(
        version=RESULTS_VERSION,
        run=config,
        tasks=tasks,
        suites=_suite_results(results),
        cost=_total_costs(tasks),
        rewards=_reward_statistics(rewarded_samples),
        **optional_sections,
    )


def _task_results(
    results: Sequence[ProblemResult],
    task_config: TaskConfig,
    results_by_task: Mapping[str, Sequence[ProblemResult]],
    n_failed: int,
) -> TaskResults:
    """Return the results of a benchmark; other benchmarks of the run can be its base task."""
    decoders = results[0].decoder_answers
    groups = results[0].groups
    base_results = results_by_task.get(task_config.base_task, ())
    base_results_by_question = {result.question: result for result in base_results}
    has_tolerance = task_config.tolerance is not None
    spread: dict[str, AccuracySpread] = {}
    if task_config.spread_group:
        spread = _group_spread(results, task_config.spread_group)
    accuracy_drops = {}
    if base_results_by_question:
        accuracy_drops = {
            group: _accuracy_drops(results, group, base_results_by_question) for group in groups
        }
    numbers: dict[str, Any] = {
        number.name: {key: accuracy_result(value) for key, value in number.compute(results).items()}
        for number in NUMBERS.values()
    }
    optional_fields: dict[str, Any] = {"failed": n_failed} if n_failed else {}
    return TaskResults(
        title=task_config.title,
        problems=len(results),
        task_problems=task_config.rows,
        decoders={
            name: _decoder_results(results, name, has_tolerance=has_tolerance) for name in decoders
        },
        groups={group: _group_accuracies(results, group) for group in groups},
        group_spread=spread,
        accuracy_drops=accuracy_drops,
        **optional_fields,
        **numbers,
    )


def accuracy_result(accuracy: Mean) -> AccuracyResult:
    """Return an accuracy in the format of ``results.json``."""
    if accuracy.value is None or accuracy.ci95 is None:
        return AccuracyResult(correct=0, n=0, accuracy=None, ci95=None, clusters=None)
    return AccuracyResult(
        correct=round(accuracy.value * accuracy.n, 6),
        n=accuracy.n,
        accuracy=round(accuracy.value, 6),
        ci95=accuracy.ci95.round_bounds(6),
        clusters=accuracy.clusters,
    )


def _decoder_results(
    results: Sequence[ProblemResult], decoder: str, *, has_tolerance: bool
) -> DecoderResults:
    """Return the results of a decoder on a benchmark."""
    answers = [
        result.decoder_answers[decoder] for result in results if decoder in result.decoder_answers
    ]
    outcomes = Counter(answer.status for answer in answers)
    accuracy = accuracy_result(decoder_accuracy(results, decoder))
    optional_fields = {}
    if has_tolerance:
        optional_fields["strict"] = accuracy_result(decoder_accuracy(results, decoder, strict=True))
    if outcomes[UNDECIDED]:
        upper_bound = decoder_accuracy(results, decoder, undecided_is_correct=True)
        optional_fields["upper_bound"] = accuracy_result(upper_bound)
    if any(answer.has_judge_rule for answer in answers):
        optional_fields["without_judge"] = accuracy_result(
            decoder_accuracy(results, decoder, without_judge=True)
        )
        optional_fields["upper_bound_without_judge"] = accuracy_result(
            decoder_accuracy(results, decoder, without_judge=True, undecided_is_correct=True)
        )
    return DecoderResults(
        correct=accuracy.correct,
        n=accuracy.n,
        accuracy=accuracy.accuracy,
        ci95=accuracy.ci95,
        clusters=accuracy.clusters,
        outcomes=dict(sorted(outcomes.items())),
        cost=_sum_costs([answer.cost for answer in answers]),
        **optional_fields,
    )


def _sum_costs(costs: Sequence[DecodingCost | CostResult]) -> CostResult:
    """Return the sum of costs; the tokens are unknown if one cost has unknown tokens."""
    tokens = [cost.tokens for cost in costs if isinstance(cost.tokens, int | float)]
    return CostResult(
        tokens=round(sum(tokens), 3) if len(tokens) == len(costs) else UNKNOWN,
        prm_calls=round(sum(cost.prm_calls for cost in costs), 3),
        seconds=round(sum(cost.seconds for cost in costs), 3),
    )


def _results_by_label(
    results: Sequence[ProblemResult], group: str
) -> dict[str, list[ProblemResult]]:
    """Return the problems of a group by label, with numeric labels in numeric order."""
    by_label: dict[str, list[ProblemResult]] = defaultdict(list)
    for result in results:
        if group in result.groups:
            by_label[result.groups[group]].append(result)
    # Shorter numbers come first: 2 before 10.
    labels = sorted(by_label, key=lambda label: (label.isdecimal() and len(label), label))
    return {label: by_label[label] for label in labels}


def _group_accuracies(
    results: Sequence[ProblemResult], group: str
) -> dict[str, dict[str, AccuracyResult]]:
    """Return the accuracies by label and decoder."""
    return {
        label: {
            name: accuracy_result(decoder_accuracy(part, name)) for name in part[0].decoder_answers
        }
        for label, part in _results_by_label(results, group).items()
    }


def _group_spread(results: Sequence[ProblemResult], group: str) -> dict[str, AccuracySpread]:
    """Return mean, standard deviation and range of the accuracies of a group's parts."""
    spread: dict[str, AccuracySpread] = {}
    parts = _results_by_label(results, group).values()
    for name in results[0].decoder_answers:
        accuracies = [decoder_accuracy(part, name).value for part in parts]
        values = [accuracy for accuracy in accuracies if accuracy is not None]
        if len(values) > 1:
            spread[name] = AccuracySpread(
                parts=len(values),
                mean=round(fmean(values), 6),
                deviation=round(stdev(values), 6),
                lowest=round(min(values), 6),
                highest=round(max(values), 6),
            )
    return spread


def _accuracy_drops(
    results: Sequence[ProblemResult],
    group: str,
    base_results_by_question: Mapping[str, ProblemResult],
) -> dict[str, dict[str, AccuracyDrop]]:
    """Return the accuracy drops against the base problems, by label and decoder."""
    drops: dict[str, dict[str, AccuracyDrop]] = {}
    for label, part in _results_by_label(results, group).items():
        for name in part[0].decoder_answers:
            losses = []
            for result in part:
                base_result = base_results_by_question.get(result.cluster or "")
                if base_result is None:
                    continue
                base_correct = base_result.decoder_answers[name].correct
                correct = result.decoder_answers[name].correct
                if base_correct is not None and correct is not None:
                    losses.append(int(base_correct) - int(correct))
            if losses:
                drops.setdefault(label, {})[name] = AccuracyDrop(
                    drop=round(fmean(losses), 6),
                    n=len(losses),
                    ci95=mean_difference(losses).ci95.round_bounds(6),
                )
    return drops


def _suite_results(
    results: Mapping[str, Sequence[ProblemResult]],
) -> dict[str, SuiteResults]:
    """Return the mean accuracies of the complete suites with several benchmarks."""
    complete_suites = {
        name: tasks
        for name, tasks in suites().items()
        if len(tasks) > 1 and set(tasks) <= set(results)
    }
    is_a_suite = any(set(tasks) == set(results) for tasks in complete_suites.values())
    if len(results) > 1 and not is_a_suite:
        complete_suites["this run"] = tuple(results)
    suite_results: dict[str, SuiteResults] = {}
    for name, tasks in complete_suites.items():
        means = {}
        for decoder in results[tasks[0]][0].decoder_answers:
            accuracies = [decoder_accuracy(results[task], decoder) for task in tasks]
            means[decoder] = _mean_accuracy(accuracies)
        suite_results[name] = SuiteResults(tasks=list(tasks), decoders=means)
    return suite_results


def _mean_accuracy(accuracies: Sequence[Mean]) -> AccuracyResult:
    """Return the mean of the accuracies of benchmarks, with equal weights."""
    values: list[float] = []
    intervals: list[Interval] = []
    for accuracy in accuracies:
        if accuracy.value is not None and accuracy.ci95 is not None:
            values.append(accuracy.value)
            intervals.append(accuracy.ci95)
    return AccuracyResult(
        correct=round(sum(accuracy_result(accuracy).correct for accuracy in accuracies), 6),
        n=sum(accuracy.n for accuracy in accuracies),
        accuracy=round(fmean(values), 6) if values else None,
        ci95=macro_interval(values, intervals).round_bounds(6) if values else None,
        clusters=None,
    )


def _total_costs(tasks: Mapping[str, TaskResults]) -> dict[str, CostResult]:
    """Return the costs of each decoder over all benchmarks."""
    costs_by_decoder: dict[str, list[CostResult]] = defaultdict(list)
    for task in tasks.values():
        for decoder, decoder_results in task.decoders.items():
            costs_by_decoder[decoder].append(decoder_results.cost)
    return {decoder: _sum_costs(costs) for decoder, costs in costs_by_decoder.items()}


REWARD_BINS = 10  #: Bins of a reward in [0, 1].
#: The aggregate of the reward distribution; the paper uses it for best-of-N.
DISTRIBUTION_AGGREGATE = "min"
MAX_STEP_NUMBER = 12  #: Last step number of the statistics by step; it includes later steps.


def bin_index(reward: float) -> int:
    """Return the bin of a reward; rewards outside [0, 1] belong to the first or last bin."""
    return max(0, min(REWARD_BINS - 1, int(reward * REWARD_BINS)))


class RewardedSample(NamedTuple):
    """A graded sample with step rewards."""

    problem_index: int  #: Index of the problem's record.
    rewards: Sequence[float]  #: One reward per step.
    is_correct: bool  #: Whether the answer is correct.


def collect_rewarded_samples(
    records: Iterable[ProblemRecord], rewarded_samples: list[RewardedSample]
) -> Iterator[ProblemRecord]:
    """Yield the records, and append their graded samples with rewards to ``rewarded_samples``."""
    for problem_index, record in enumerate(records):
        for sample in record.samples:
            if sample.rewards and sample.correct is not None:
                rewarded_samples.append(
                    RewardedSample(problem_index, sample.rewards, sample.correct)
                )
        yield record


def _reward_statistics(samples: Sequence[RewardedSample]) -> RewardStatistics | None:
    """Return the statistics of the rewards; None without rewards."""
    if not samples:
        return None
    problems = [sample.problem_index for sample in samples]
    is_correct = [sample.is_correct for sample in samples]
    scores = {name: [aggregate(sample.rewards, name) for sample in samples] for name in AGGREGATES}
    bin_counts = {True: [0] * REWARD_BINS, False: [0] * REWARD_BINS}
    for score, correct in zip(scores[DISTRIBUTION_AGGREGATE], is_correct, strict=True):
        bin_counts[correct][bin_index(score)] += 1
    return RewardStatistics(
        solutions=len(samples),
        correct=sum(is_correct),
        calibration=_calibration(samples),
        distribution=RewardDistribution(
            aggregate=DISTRIBUTION_AGGREGATE,
            correct=bin_counts[True],
            wrong=bin_counts[False],
        ),
        by_step=RewardsByStep(
            correct=_mean_rewards_by_step([s.rewards for s in samples if s.is_correct]),
            wrong=_mean_rewards_by_step([s.rewards for s in samples if not s.is_correct]),
        ),
        ranking_auc={
            name: ranking_auc(problems, aggregate_scores, is_correct)
            for name, aggregate_scores in scores.items()
        },
    )


class _BinnedStep(NamedTuple):
    """A step of a graded sample."""

    is_correct: bool  #: Whether the solution of the step is correct.
    problem_index: int  #: Index of the problem's record.
    reward: float  #: Reward of the step.


def _calibration(samples: Sequence[RewardedSample]) -> Calibration:
    """Compare step rewards with the fraction of correct solutions.

    A reward model trained on outcomes predicts this fraction. Steps of one problem are not
    independent, so the intervals are clustered by problem.
    """
    steps_by_bin: dict[int, list[_BinnedStep]] = defaultdict(list)
    for problem_index, rewards, is_correct in samples:
        for reward in rewards:
            step = _BinnedStep(is_correct, problem_index, reward)
            steps_by_bin[bin_index(reward)].append(step)
    bins = [_bin_statistics(index, steps) for index, steps in sorted(steps_by_bin.items())]
    n_steps = sum(entry.steps for entry in bins)
    weighted_gaps = sum(entry.steps * abs(entry.reward - entry.correct) for entry in bins)
    return Calibration(bins=bins, expected_error=round(weighted_gaps / n_steps, 6))


def _mean_rewards_by_step(
    step_rewards: Sequence[Sequence[float]],
) -> list[StepReward | None]:
    """Return the mean reward by step number; None for numbers without steps."""
    rewards_by_number: list[list[float]] = [[] for _ in range(MAX_STEP_NUMBER)]
    for rewards in step_rewards:
        for number, reward in enumerate(rewards):
            rewards_by_number[min(number, MAX_STEP_NUMBER - 1)].append(reward)
    return [
        StepReward(reward=round(fmean(rewards), 6), steps=len(rewards)) if rewards else None
        for rewards in rewards_by_number
    ]


def _bin_statistics(index: int, steps: Sequence[_BinnedStep]) -> RewardBin:
    """Return the statistics of one bin of step rewards."""
    accuracy = mean_rate(
        [step.is_correct for step in steps], [step.problem_index for step in steps]
    )
    assert accuracy.value is not None and accuracy.ci95 is not None  # a bin has steps
    bounds = {"from": index / REWARD_BINS, "to": (index + 1) / REWARD_BINS}
    return RewardBin(
        **bounds,
        steps=accuracy.n,
        problems=accuracy.clusters,
        reward=round(sum(step.reward for step in steps) / accuracy.n, 6),
        correct=round(accuracy.value, 6),
        ci95=accuracy.ci95.round_bounds(6),
    )
