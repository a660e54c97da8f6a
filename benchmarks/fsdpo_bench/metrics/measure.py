"""Measure datasets: every number of ``results.json`` from the columns of their solutions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from fsdpo_bench.decoders.decoders import SAMPLES_PART, parse_result_name
from fsdpo_bench.metrics.decoder_choices import (
    DecoderChoices,
    SubsetSpec,
    decodable_setups,
    decode,
    select_decoders,
    simplify_count,
)
from fsdpo_bench.metrics.pools import Benchmark, Pool
from fsdpo_bench.metrics.report_numbers import NUMBERS
from fsdpo_bench.metrics.reranking import ahead_of_min, ahead_of_vote, select_strategies
from fsdpo_bench.metrics.result_records import (
    AccuracySpread,
    DecoderResults,
    MeasuredDataset,
    MeasurementSettings,
    Results,
    SuiteResults,
    TaskResults,
)
from fsdpo_bench.metrics.reward_statistics import count_unscored, reward_statistics
from fsdpo_bench.metrics.sample_arrays import BenchmarkProblem, Samples
from fsdpo_bench.run_folder import FORMAT_VERSION
from fsdpo_bench.tasks.table import suites
from fsdpo_data.core.cost import NO_COST, Cost
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import np
from fsdpo_data.core.statistics import (
    Interval,
    Mean,
    MeanDifference,
    macro_interval,
    mean_difference,
    mean_rate,
)
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.stage_records import (
    GRADE_STAGE,
    SAMPLE_STAGE,
    AnswerJudgeStats,
    GradeRecord,
    SampleRecord,
)
from fsdpo_data.engines.scorers.prm_formats import ScoreSettings

#: Choices by benchmark and result name.
Decoded = Mapping[str, Mapping[str, DecoderChoices]]


@dataclass(frozen=True, slots=True)
class MeasureSpec:
    """What is measured on datasets."""

    sizes: Sequence[int] = ()  #: Values of N; by default those of the run, or powers of 2.
    aggregates: Sequence[str] = ()  #: Aggregates; by default those of the run, or all.
    #: The random subsets of votes.
    subsets: SubsetSpec = field(default_factory=SubsetSpec)
    gammas: Sequence[float] = ()  #: Values of γ for the step weights of pairs.


def decode_pool(pool: Pool, spec: MeasureSpec) -> Decoded:
    """Return the choices of all decoders of a report.

    Raises:
        InputError: if the run has results of a decoder that is not installed.
    """
    for name in pool.run.decoders if pool.run is not None else ():
        if parse_result_name(name) is None:
            raise InputError(
                f"{pool.name} has results of the decoder {name}, which is not installed here. "
                "Install its package, or name its module with `plugin`."
            )
    setups = select_decoders(pool, spec.sizes, spec.aggregates)
    return {
        name: {
            result_name: decode(benchmark, setup, spec.subsets)
            for result_name, setup in decodable_setups(benchmark, setups).items()
        }
        for name, benchmark in pool.benchmarks.items()
    }


def measure(pool: Pool, spec: MeasureSpec, decoded: Decoded) -> Results:
    """Return all results of datasets that are measured together."""
    tasks = {
        name: _task_results(benchmark, pool, decoded) for name, benchmark in pool.benchmarks.items()
    }
    names = list(dict.fromkeys(name for choices in decoded.values() for name in choices))
    stats = _judge_stats(pool)
    optional_sections = {} if stats is None else {"answer_judge": stats}
    samples = [benchmark.main for benchmark in pool.benchmarks.values()]
    rewards = {
        model: statistics
        for model in pool.reward_models
        if (statistics := reward_statistics(model, samples, spec.gammas)) is not None
    }
    return Results(
        version=FORMAT_VERSION,
        run=measurement_settings(pool, names),
        tasks=tasks,
        suites=_suite_results(pool, decoded),
        cost=_total_costs(pool, decoded),
        rewards=rewards,
        **optional_sections,
    )


def _task_results(benchmark: Benchmark, pool: Pool, decoded: Decoded) -> TaskResults:
    """Return the results of a benchmark; other benchmarks can be its base task."""
    choices = decoded[benchmark.name]
    main = benchmark.main
    base_task = benchmark.task.base_task if benchmark.task else ""
    spread_group = benchmark.task.spread_group if benchmark.task else ""
    groups = group_labels(main)
    numbers: dict[str, dict[str, Mean]] = {}
    if SAMPLES_PART in benchmark.parts:
        counts_P = main.counts_P
        numbers = {
            number.name: {
                key: mean_rate(value_P[counts_P], main.clusters(counts_P))
                for key, value_P in number.compute(main, choices).items()
            }
            for number in NUMBERS.values()
        }
    optional_fields: dict[str, Any] = {}
    if benchmark.failed > 0:
        optional_fields["failed"] = benchmark.failed
    if benchmark.left_out:
        optional_fields["left_out"] = benchmark.left_out
    if unscored := count_unscored(main):
        optional_fields["unscored"] = unscored
    comparisons = {
        "ahead_of_vote": ahead_of_vote(choices),
        "ahead_of_min": ahead_of_min(choices),
        "selected": select_strategies(choices),
    }
    optional_fields |= {name: value for name, value in comparisons.items() if value}
    drops = {}
    if base_task in decoded:
        base_samples = pool.benchmarks[base_task].main
        drops = {
            group: group_drops
            for group, labels in groups.items()
            if (group_drops := _accuracy_drops(labels, choices, decoded[base_task], base_samples))
        }
    is_correct_PM = main.is_correct_PM[main.counts_P]
    return TaskResults(
        title=benchmark.title,
        problems=len(main.problems),
        distinct_problems=int(_first_rows(main.problems).sum()),
        task_problems=benchmark.task.count if benchmark.task else None,
        samples=main.n_samples,
        mixed_problems=int((is_correct_PM.any(axis=1) & ~is_correct_PM.all(axis=1)).sum()),
        decoders={name: _decoder_results(entry) for name, entry in choices.items()},
        numbers=numbers,
        groups={group: _group_accuracies(labels, choices) for group, labels in groups.items()},
        group_spread=_group_spread(groups[spread_group], choices) if spread_group in groups else {},
        accuracy_drops=drops,
        **optional_fields,
    )


def _decoder_results(choices: DecoderChoices) -> DecoderResults:
    """Return the results of a decoder on a benchmark."""
    samples = choices.samples
    optional_fields: dict[str, Any] = {}
    exactly_correct_P = choices.exactly_correct_P
    if exactly_correct_P is not None:
        optional_fields["exactly_correct"] = choices.mean(exactly_correct_P)
    upper_bound = choices.mean(choices.upper_bound_P)
    accuracy = choices.mean(choices.correct_P)
    if upper_bound.value != accuracy.value:
        optional_fields["upper_bound"] = upper_bound
    if samples.is_judged_PM.any() and choices.expected_P(samples.is_judged_PM).any():
        optional_fields["without_judge"] = choices.mean(choices.without_judge_P)
        optional_fields["upper_bound_without_judge"] = choices.mean(
            choices.upper_bound_without_judge_P
        )
    return DecoderResults(
        accuracy=accuracy,
        outcomes=choices.outcome_counts(),
        cost=_cost(choices, _first_rows(samples.problems)),
        **optional_fields,
    )


def _first_rows(
    problems: Sequence[BenchmarkProblem], earlier_ids: Collection[str] = ()
) -> np.ndarray:
    """Return whether each problem is at its first row.

    The rows of a problem share its solutions, so only the first row has a cost.

    Args:
        problems: The problems of a benchmark.
        earlier_ids: Ids of the problems of earlier benchmarks.
    """
    seen_ids = set(earlier_ids)
    is_first = []
    for benchmark_problem in problems:
        is_first.append(benchmark_problem.problem_id not in seen_ids)
        seen_ids.add(benchmark_problem.problem_id)
    return np.array(is_first)


def _cost(choices: DecoderChoices, selected_P: np.ndarray) -> Cost:
    """Return the cost of a decoder over some problems: of K samples, or of one search.

    Each sample is in equally many subsets, so K of M samples cost K/M of all.
    """
    samples = choices.samples
    size = 1
    tokens_PM = samples.tokens_PM[selected_P]
    tokens = float(tokens_PM[:, 0].sum())
    prm_calls = int(samples.prm_calls_PM[selected_P, 0].sum())
    setup = choices.setup
    if setup.decoder.has_k:
        size = setup.k
        tokens = float(tokens_PM.sum()) * size / samples.n_samples
    if setup.decoder.uses_sample_rewards:
        prm_calls = size * int(selected_P.sum())
    known_tokens = None if math.isnan(tokens) else simplify_count(tokens)
    return Cost(tokens=known_tokens, prm_calls=prm_calls)


def group_labels(samples: Samples) -> dict[str, dict[str, np.ndarray]]:
    """Return which problems have each label of each group, with numeric labels in order."""
    names = dict.fromkeys(
        name
        for benchmark_problem in samples.problems
        for name in benchmark_problem.benchmark_row.groups
    )
    groups = {}
    for name in names:
        labels = [
            benchmark_problem.benchmark_row.groups.get(name)
            for benchmark_problem in samples.problems
        ]
        # Shorter numbers come first: 2 before 10.
        ordered = sorted(
            {label for label in labels if label is not None},
            key=lambda label: (label.isdecimal() and len(label), label),
        )
        groups[name] = {label: np.array([other == label for other in labels]) for label in ordered}
    return groups


def _group_accuracies(
    labels: Mapping[str, np.ndarray], choices: Mapping[str, DecoderChoices]
) -> dict[str, dict[str, Mean]]:
    """Return the accuracies by label and decoder."""
    return {
        label: {name: entry.mean(entry.correct_P, selected_P) for name, entry in choices.items()}
        for label, selected_P in labels.items()
    }


def _group_spread(
    labels: Mapping[str, np.ndarray], choices: Mapping[str, DecoderChoices]
) -> dict[str, AccuracySpread]:
    """Return mean, standard deviation and range of the accuracies of a group's parts."""
    spread: dict[str, AccuracySpread] = {}
    for name, entry in choices.items():
        accuracies = [entry.mean(entry.correct_P, selected_P) for selected_P in labels.values()]
        values = [accuracy.value for accuracy in accuracies if accuracy.value is not None]
        if len(values) > 1:
            spread[name] = AccuracySpread(
                parts=len(values),
                mean=fmean(values),
                deviation=stdev(values),
                lowest=min(values),
                highest=max(values),
            )
    return spread


def _accuracy_drops(
    labels: Mapping[str, np.ndarray],
    choices: Mapping[str, DecoderChoices],
    base_choices: Mapping[str, DecoderChoices],
    base_samples: Samples,
) -> dict[str, dict[str, MeanDifference]]:
    """Return the accuracy drops against the base problems, by label and decoder."""
    base_index = {
        benchmark_problem.problem.question: index
        for index, benchmark_problem in enumerate(base_samples.problems)
    }
    drops: dict[str, dict[str, MeanDifference]] = {}
    for label, selected_P in labels.items():
        for name, entry in choices.items():
            if name not in base_choices:  # the base problems have no rewards
                continue
            correct_P = entry.correct_P
            base_correct_P = base_choices[name].correct_P
            losses = []
            bases = []
            for index in np.flatnonzero(selected_P & entry.samples.counts_P).tolist():
                base = base_index.get(entry.samples.problems[index].benchmark_row.cluster or "")
                if base is not None and base_samples.counts_P[base]:
                    losses.append(float(base_correct_P[base] - correct_P[index]))
                    bases.append(base)
            if losses:
                clusters = bases if len(set(bases)) < len(bases) else None
                drops.setdefault(label, {})[name] = mean_difference(losses, clusters)
    return drops


def _suite_results(pool: Pool, decoded: Decoded) -> dict[str, SuiteResults]:
    """Return the mean accuracies of the complete suites with several benchmarks.

    Only a run knows that its problems come from a suite, and not from files with the same names.
    """
    run_entries = pool.run.benchmarks if pool.run is not None else {}
    listed_names = {name for name, entry in run_entries.items() if entry.is_listed} & set(decoded)
    complete_suites = {
        name: tasks
        for name, tasks in suites().items()
        if len(tasks) > 1 and set(tasks) <= listed_names
    }
    is_a_suite = any(set(tasks) == set(decoded) for tasks in complete_suites.values())
    if len(decoded) > 1 and not is_a_suite:
        complete_suites["this run"] = tuple(decoded)
    suite_results: dict[str, SuiteResults] = {}
    for name, tasks in complete_suites.items():
        means = {}
        for decoder in decoded[tasks[0]]:
            entries = [decoded[task][decoder] for task in tasks if decoder in decoded[task]]
            if len(entries) == len(tasks):
                means[decoder] = _mean_accuracy(entries)
        suite_results[name] = SuiteResults(tasks=list(tasks), accuracies=means)
    return suite_results


def _mean_accuracy(entries: Sequence[DecoderChoices]) -> Mean:
    """Return the mean of the accuracies of a decoder on benchmarks, with equal weights.

    There is no mean if no problem of a benchmark counts.
    """
    accuracies = [entry.mean(entry.correct_P) for entry in entries]
    clusters = [entry.samples.counted_clusters for entry in entries]
    values: list[float] = []
    intervals: list[Interval] = []
    for accuracy in accuracies:
        if accuracy.value is not None and accuracy.ci95 is not None:
            values.append(accuracy.value)
            intervals.append(accuracy.ci95)
    is_complete = len(values) == len(accuracies)
    return Mean(
        value=fmean(values) if is_complete else None,
        n=sum(accuracy.n for accuracy in accuracies),
        ci95=macro_interval(values, intervals, clusters) if is_complete else None,
    )


def _total_costs(pool: Pool, decoded: Decoded) -> dict[str, Cost]:
    """Return the costs of each decoder over the problems of all benchmarks."""
    costs_by_decoder: dict[str, list[Cost]] = defaultdict(list)
    seen_ids: set[str] = set()
    for name, benchmark in pool.benchmarks.items():
        problems = benchmark.main.problems
        selected_P = _first_rows(problems, seen_ids)
        seen_ids.update(benchmark_problem.problem_id for benchmark_problem in problems)
        for decoder, choices in decoded[name].items():
            costs_by_decoder[decoder].append(_cost(choices, selected_P))
    return {decoder: sum(costs, NO_COST) for decoder, costs in costs_by_decoder.items()}


def measurement_settings(pool: Pool, decoders: Sequence[str]) -> MeasurementSettings:
    """Return the settings of a pool, from the manifests of its datasets."""
    manifests = {name: read_manifest(root) for name, root in pool.parts.items()}
    main = manifests[pool.main_part]
    scores: dict[str, ScoreSettings] = {}
    for model, root in pool.scored.items():
        manifest = read_manifest(root)
        if root not in pool.parts.values():
            manifests[model] = manifest
        if manifest.score_settings is not None:
            scores[model] = manifest.score_settings
    return MeasurementSettings(
        sample=main.get(SAMPLE_STAGE, SampleRecord).options,
        grade=main.get(GRADE_STAGE, GradeRecord).options,
        reward_models=scores,
        decoders=list(decoders),
        benchmarks=pool.run.benchmarks if pool.run else {},
        datasets={
            name: MeasuredDataset(
                digest=manifest.digest,
                sample=manifest.get(SAMPLE_STAGE, SampleRecord).options,
                cost=manifest.cost,
            )
            for name, manifest in manifests.items()
        },
    )


def _judge_stats(pool: Pool) -> AnswerJudgeStats | None:
    """Return the decisions of the judge over all parts; None without a judge."""
    records = [read_manifest(root).get(GRADE_STAGE, GradeRecord) for root in pool.parts.values()]
    parts = [stats for record in records if (stats := record.counts.answer_judge)]
    if not parts:
        return None
    tokens = [stats.tokens for stats in parts if stats.tokens is not None]
    return AnswerJudgeStats(
        answers=sum(stats.answers for stats in parts),
        correct=sum(stats.correct for stats in parts),
        incorrect=sum(stats.incorrect for stats in parts),
        undecided=sum(stats.undecided for stats in parts),
        unreadable=sum(stats.unreadable for stats in parts),
        replies=sum(stats.replies for stats in parts),
        tokens=sum(tokens) if len(tokens) == len(parts) else None,
        seconds=round(sum(stats.seconds for stats in parts), 3),
    )
