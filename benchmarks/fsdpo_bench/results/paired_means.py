"""Paired differences of means: avg@k and pass@k of two runs, and means over benchmarks."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fsdpo_bench.intervals import Interval, macro_difference, mean_difference
from fsdpo_bench.results.numbers import NUMBERS, ReportNumber
from fsdpo_bench.results.outcomes import ProblemResult, problem_clusters

MEAN_TITLE = "mean"  #: Name of the mean over all compared benchmarks, in place of a benchmark.


@dataclass(frozen=True, slots=True)
class PairedMean:
    """The difference of two means over the same problems, or over the same benchmarks."""

    task: str  #: Name of the benchmark; ``mean`` for the mean over all compared benchmarks.
    #: What is compared: ``avg@8``, ``pass@4``, or for a mean over benchmarks also a decoder.
    measure: str
    value_a: float  #: The first run's value.
    value_b: float  #: The second run's value.
    n: int  #: Problems that count in both runs.
    difference: float  #: The second run's value minus the value of the first.
    ci95: Interval  #: 95 % interval of the difference.
    p: float | None  #: p-value of a difference of zero; None for a mean over benchmarks.
    clusters: int | None = None  #: Number of base problems, if several problems share one.


def number_differences(
    task: str, pairs: Sequence[tuple[ProblemResult, ProblemResult]]
) -> Iterator[PairedMean]:
    """Yield the differences of all registered numbers with a value per problem.

    Args:
        task: Name of the benchmark.
        pairs: The results of each problem in both runs.
    """
    for number in NUMBERS.values():
        if number.problem_value is None:
            continue
        keys_a = number.compute([result for result, _ in pairs])
        keys_b = number.compute([result for _, result in pairs])
        for key_a, key_b in _key_pairs(list(keys_a), list(keys_b)):
            mean = _number_difference(task, pairs, number, key_a, key_b)
            if mean is not None:
                yield mean


def _key_pairs(keys_a: Sequence[str], keys_b: Sequence[str]) -> list[tuple[str, str]]:
    """Return the keys to compare: the common ones, or the only key of each run."""
    if len(keys_a) == len(keys_b) == 1:
        return [(keys_a[0], keys_b[0])]
    return [(key, key) for key in keys_a if key in keys_b]


def _number_difference(
    task: str,
    pairs: Sequence[tuple[ProblemResult, ProblemResult]],
    number: ReportNumber,
    key_a: str,
    key_b: str,
) -> PairedMean | None:
    """Return the difference of a number; None if no problem has a value in both runs."""
    assert number.problem_value is not None  # checked by the caller
    counted_problems = []
    values_a = []
    values_b = []
    for result_a, result_b in pairs:
        value_a = number.problem_value(result_a, key_a)
        value_b = number.problem_value(result_b, key_b)
        if value_a is not None and value_b is not None:
            counted_problems.append(result_a)
            values_a.append(value_a)
            values_b.append(value_b)
    if not counted_problems:
        return None
    differences = [b - a for a, b in zip(values_a, values_b, strict=True)]
    mean = mean_difference(differences, problem_clusters(counted_problems))
    titles = dict.fromkeys(number.title.format(key=key) for key in (key_a, key_b))
    return PairedMean(
        task=task,
        measure=" / ".join(titles),
        value_a=sum(values_a) / mean.n,
        value_b=sum(values_b) / mean.n,
        n=mean.n,
        difference=mean.value,
        ci95=mean.ci95,
        p=mean.p,
        clusters=mean.clusters,
    )


def benchmark_means(means: Sequence[PairedMean]) -> Iterator[PairedMean]:
    """Yield the mean over the benchmarks for each measure that all benchmarks have.

    Every benchmark has the same weight.

    Args:
        means: The differences of all benchmarks.
    """
    by_measure: Mapping[str, list[PairedMean]] = defaultdict(list)
    for mean in means:
        by_measure[mean.measure].append(mean)
    n_tasks = len({mean.task for mean in means})
    for measure, singles in by_measure.items():
        if n_tasks < 2 or len(singles) < n_tasks:
            continue
        overall = macro_difference(
            [single.difference for single in singles],
            [single.ci95 for single in singles],
            sum(single.n for single in singles),
        )
        yield PairedMean(
            task=MEAN_TITLE,
            measure=measure,
            value_a=sum(single.value_a for single in singles) / n_tasks,
            value_b=sum(single.value_b for single in singles) / n_tasks,
            n=overall.n,
            difference=overall.value,
            ci95=overall.ci95,
            p=overall.p,
        )
