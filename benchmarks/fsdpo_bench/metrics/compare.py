"""Compare two runs or datasets on the same problems: paired differences, and changed problems.

Array suffixes: ``P`` problems.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

from fsdpo_bench.decoders.decoders import SAMPLES_PART, DecoderSetup, parse_result_name
from fsdpo_bench.metrics.decoder_choices import (
    DecoderChoices,
    SubsetSpec,
    decodable_setups,
    decode,
    has_fitting_rewards,
    name_models,
    select_decoders,
)
from fsdpo_bench.metrics.pools import Benchmark, Pool
from fsdpo_bench.metrics.report_numbers import NUMBERS
from fsdpo_bench.metrics.reward_statistics import count_unscored, describe_unscored
from fsdpo_bench.metrics.sample_arrays import BenchmarkProblem, Samples, shared_clusters
from fsdpo_bench.metrics.setting_notes import describe_value, reward_model_notes, setting_notes
from fsdpo_bench.tasks.table import is_same_name
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import np
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.statistics import (
    Difference,
    MeanDifference,
    macro_interval,
    mcnemar,
    mean_difference,
    sum_clusters,
)


@dataclass(frozen=True, slots=True)
class ChangedProblem:
    """A problem that only one of two systems solves; a system is a decoder of a dataset."""

    task: str  #: Name of the benchmark.
    problem_id: str  #: Content id of the problem.
    question: str  #: The question.
    gold: str  #: The gold answer.
    answer_a: str | None  #: The first system's answer.
    answer_b: str | None  #: The second system's answer.
    better: str  #: The system that solves the problem: ``a`` or ``b``.


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The difference of two numbers over the same problems."""

    task: str  #: Name of the benchmark.
    measure_a: str  #: What is compared of A: a decoder, or a number such as ``avg@8``.
    measure_b: str  #: What is compared of B.
    value_a: float  #: Accuracy or mean of A.
    value_b: float  #: Accuracy or mean of B.
    #: Value of B minus value of A, over the problems that count in both; unreadable gold answers do
    #: not count. The p-value is of the exact McNemar test if all values are 0 or 1, and of the t
    #: test of Student otherwise.
    difference: MeanDifference
    only_a: int | None = None  #: Problems with 1 in A and 0 in B; None for other values.
    only_b: int | None = None  #: Problems with 1 in B and 0 in A; None for other values.

    @property
    def measure(self) -> str:
        """The name of both measures, or their names if they differ."""
        return " / ".join(dict.fromkeys((self.measure_a, self.measure_b)))


@dataclass(frozen=True, slots=True)
class BenchmarkMean:
    """The mean over all compared benchmarks, with equal weights, of a number and its difference."""

    measure: str  #: The name of both measures, or their names if they differ.
    value_a: float  #: Mean of A.
    value_b: float  #: Mean of B.
    difference: Difference  #: Value of B minus value of A.


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two runs or datasets."""

    #: Differences by benchmark: of decoders, then of other numbers.
    differences: Sequence[PairedDifference]
    #: Means over the benchmarks, for each measure that all of them have; empty for one benchmark.
    means: Sequence[BenchmarkMean]
    #: Problems whose verdict changed, for the first pair of decoders of each benchmark whose
    #: choices are certain.
    changed: Sequence[ChangedProblem]
    #: Warnings for the reader: omitted benchmarks, decoders and problems, and settings that differ,
    #: such as graders, tolerances, prompts or reward models.
    notes: Sequence[str]


class ComparisonOptions(Options):
    """The benchmarks, decoders and problems of a comparison."""

    task: str | None = None
    """Compare only this benchmark."""
    decoder_a: Annotated[str | None, Option(flags=["--decoder"], default_text="all")] = None
    """Decoder of A. By default, each decoder that both have is compared with itself."""
    decoder_b: Annotated[str | None, Option(default_text="that of A")] = None
    """Decoder of B. Given alone, it applies to both."""
    common: bool = False
    """Compare the common problems if A and B have different problems."""


class BenchmarkPair(NamedTuple):
    """A benchmark in both pools, with the indices of its common problems."""

    benchmark_a: Benchmark  #: The benchmark in A.
    benchmark_b: Benchmark  #: The benchmark in B.
    index_a: list[int]  #: Index of each common problem in A.
    index_b: list[int]  #: Index of each common problem in B.

    @property
    def name(self) -> str:
        """Name of the benchmark."""
        return self.benchmark_a.name

    @property
    def n_samples(self) -> int:
        """Number of samples per problem that both have."""
        return min(self.benchmark_a.main.n_samples, self.benchmark_b.main.n_samples)

    @property
    def problems(self) -> list[BenchmarkProblem]:
        """The common problems, as A has them."""
        return [self.benchmark_a.main.problems[index] for index in self.index_a]

    @property
    def counted_clusters(self) -> list[str]:
        """Clusters of the common problems that count in both."""
        samples_a, samples_b = self.benchmark_a.main, self.benchmark_b.main
        counts_P = samples_a.counts_P[self.index_a] & samples_b.counts_P[self.index_b]
        return [self.problems[index].cluster for index in np.flatnonzero(counts_P)]

    @property
    def has_counted_problems(self) -> bool:
        """Whether a common problem counts in both."""
        return bool(self.counted_clusters)

    def describe_other_problems(self, name_a: str, name_b: str) -> str:
        """Count the problems of one pool alone, by the names of the pools; empty without any."""
        n_only_a = len(self.benchmark_a.main.problems) - len(self.index_a)
        n_only_b = len(self.benchmark_b.main.problems) - len(self.index_b)
        if not n_only_a and not n_only_b:
            return ""
        return (
            f"{self.name}: {len(self.index_a)} problems are in both, {n_only_a} only in {name_a} "
            f"and {n_only_b} only in {name_b}"
        )


class DecodedPair(NamedTuple):
    """The choices of a decoder in A and of a decoder in B for the common problems."""

    a: DecoderChoices  #: The choices in A, for all its problems.
    b: DecoderChoices  #: The choices in B, for all its problems.

    @property
    def name(self) -> str:
        """The names of both decoders, or their name if they are equal."""
        return " / ".join(dict.fromkeys((self.a.name, self.b.name)))


def compare_pools(pool_a: Pool, pool_b: Pool, options: ComparisonOptions) -> Comparison:
    """Compare two pools problem by problem.

    Raises:
        InputError: if they have no common benchmark or decoder, or different problems without
            ``common``.
    """
    pools = [pool_a, pool_b]
    notes = setting_notes(pools)
    if options.task is None:
        notes += _one_sided_notes("benchmarks", pool_a.benchmarks, pool_b.benchmarks)
    differences: list[PairedDifference] = []
    changed: list[ChangedProblem] = []
    clusters: dict[str, list[str]] = {}
    for pair, note in pair_benchmarks(pool_a, pool_b, options):
        if note:
            notes.append(note)
        clusters[pair.name] = pair.counted_clusters
        notes += problem_notes(pair)
        for name, benchmark in (("A", pair.benchmark_a), ("B", pair.benchmark_b)):
            notes += left_out_notes(name, benchmark)
            notes += unscored_notes(name, benchmark) if _uses_rewards(options) else []
        decoded_pairs = decode_pairs(pool_a, pool_b, pair, options)
        differences += [_decoder_difference(pair, decoded) for decoded in decoded_pairs]
        choices = [
            (decoded.name, (decoded.a.reward_model, decoded.b.reward_model))
            for decoded in decoded_pairs
        ]
        notes += reward_model_notes(pools, choices)
        changed += _changed_problems(pair, decoded_pairs)
        if options.decoder_a is None and options.decoder_b is None:
            differences += _number_differences(pair)
            default_decoders = _default_decoder_pair(pool_a, pool_b, pair)
            notes += _one_sided_notes("decoders", *default_decoders)
    if not differences:
        raise InputError(f"nothing to compare: {'; '.join(notes)}.")
    notes = list(dict.fromkeys(notes))  # the benchmarks of two runs have the same decoders
    means = _benchmark_means(differences, clusters)
    return Comparison(differences=differences, means=means, changed=changed, notes=notes)


def paired_differences(
    pair: BenchmarkPair,
    decoded_a: Mapping[str, DecoderChoices],
    decoded_b: Mapping[str, DecoderChoices],
) -> dict[str, PairedDifference]:
    """Return the differences of the common decoders and of other numbers, by name."""
    decoded_pairs = [
        DecodedPair(choices, decoded_b[name])
        for name, choices in decoded_a.items()
        if name in decoded_b
    ]
    differences = [_decoder_difference(pair, decoded) for decoded in decoded_pairs]
    differences += _number_differences(pair)
    return {difference.measure: difference for difference in differences}


def problem_notes(pair: BenchmarkPair) -> list[str]:
    """Name what differs between the common problems: their grading, and whether they count."""
    problems_b = [pair.benchmark_b.main.problems[index].problem for index in pair.index_b]
    problem_pairs = [
        (benchmark_problem.problem, problem_b)
        for benchmark_problem, problem_b in zip(pair.problems, problems_b, strict=True)
    ]
    tolerances = [(a.gold_tolerance, b.gold_tolerance) for a, b in problem_pairs]
    golds = [(a.alternative_golds, b.alternative_golds) for a, b in problem_pairs]
    notes = []
    for name, values in (("tolerances", tolerances), ("alternative golds", golds)):
        different_values = [(value_a, value_b) for value_a, value_b in values if value_a != value_b]
        if different_values:
            texts = [describe_value(value) for value in different_values[0]]
            notes.append(
                f"{pair.name}: the {name} of {len(different_values):,} of {len(values):,} common "
                f"problems differ, such as {' and '.join(texts)}"
            )
    counts_a_P = pair.benchmark_a.main.counts_P[pair.index_a]
    counts_b_P = pair.benchmark_b.main.counts_P[pair.index_b]
    n_one_sided = int((counts_a_P != counts_b_P).sum())
    if n_one_sided:
        notes.append(
            f"{pair.name}: {n_one_sided:,} of {len(pair.problems):,} common problems count on one "
            "side alone, so the differences leave them out"
        )
    return notes


def left_out_notes(name: str, benchmark: Benchmark) -> list[str]:
    """Count the problems of a benchmark that a pool leaves out.

    Args:
        name: Name of the pool.
        benchmark: The benchmark in the pool.
    """
    reasons = {"failed": benchmark.failed, "fewer samples": benchmark.left_out}
    return [
        f"{name} leaves out {count:,} problems of {benchmark.name} ({reason})"
        for reason, count in reasons.items()
        if count > 0
    ]


def _uses_rewards(options: ComparisonOptions) -> bool:
    """Return whether a compared decoder chooses by rewards; without named decoders, some may."""
    names = [name for name in (options.decoder_a, options.decoder_b) if name is not None]
    setups = [setup for name in names if (setup := parse_result_name(name)) is not None]
    return not names or any(setup.decoder.uses_sample_rewards for setup in setups)


def unscored_notes(name: str, benchmark: Benchmark) -> list[str]:
    """Count the samples of a benchmark without rewards, by reward model that lacks some.

    Args:
        name: Name of the pool.
        benchmark: The benchmark in the pool.
    """
    main = benchmark.main
    unscored = describe_unscored(count_unscored(main), main.outcome_PM.size)
    return [f"{name}, {benchmark.name}: {text}" for text in unscored]


def _one_sided_notes(kind: str, names_a: Iterable[str], names_b: Iterable[str]) -> list[str]:
    """Name the things of a kind that only one side has, so that they are not compared."""
    sides = {"A": (names_a, set(names_b)), "B": (names_b, set(names_a))}
    notes = []
    for side, (names, other_names) in sides.items():
        own_names = [name for name in names if name not in other_names]
        if own_names:
            notes.append(f"{kind} only in {side}, not compared: {', '.join(own_names)}")
    return notes


def pair_benchmarks(
    pool_a: Pool, pool_b: Pool, options: ComparisonOptions
) -> list[tuple[BenchmarkPair, str]]:
    """Return the common benchmarks, each with a note that is empty if the problems are equal.

    Raises:
        InputError: if there is no common benchmark, or if problems differ without ``common``.
    """
    names = [
        name
        for name in pool_a.benchmarks
        if name in pool_b.benchmarks and (options.task is None or is_same_name(options.task, name))
    ]
    if not names:
        message = (
            f"no common benchmark: {pool_a.name} has {', '.join(pool_a.benchmarks)}, "
            f"{pool_b.name} has {', '.join(pool_b.benchmarks)}"
        )
        if options.task:
            message += f", and `task` is {options.task}"
        raise InputError(f"{message}.")
    pairs = []
    for name in names:
        pair = pair_problems(pool_a.benchmarks[name], pool_b.benchmarks[name])
        note = pair.describe_other_problems("A", "B")
        if not pair.index_a:
            raise InputError(f"{note}. The comparison needs common problems.")
        if note and not options.common:
            raise InputError(f"{note}. Set `common=True` to compare the common problems.")
        pairs.append((pair, note))
    return pairs


def pair_problems(benchmark_a: Benchmark, benchmark_b: Benchmark) -> BenchmarkPair:
    """Return the common problems of a benchmark in two pools; there may be none.

    A problem is paired by its id and the number of earlier problems with this id.
    """
    keys_a = _problem_keys(benchmark_a.main)
    keys_b = {key: index for index, key in enumerate(_problem_keys(benchmark_b.main))}
    index_a = [index for index, key in enumerate(keys_a) if key in keys_b]
    index_b = [keys_b[keys_a[index]] for index in index_a]
    return BenchmarkPair(benchmark_a, benchmark_b, index_a, index_b)


def _problem_keys(samples: Samples) -> list[tuple[str, int]]:
    """Return id and number of earlier occurrences of each problem; ASDiv has a question twice."""
    occurrences: Counter[str] = Counter()
    keys = []
    for benchmark_problem in samples.problems:
        keys.append((benchmark_problem.problem_id, occurrences[benchmark_problem.problem_id]))
        occurrences[benchmark_problem.problem_id] += 1
    return keys


def decode_pairs(
    pool_a: Pool, pool_b: Pool, pair: BenchmarkPair, options: ComparisonOptions
) -> list[DecodedPair]:
    """Return the choices of the compared decoders on a benchmark.

    There are none if a given decoder needs rewards that the benchmark does not have.

    Raises:
        InputError: if there is no common decoder, or a given decoder is unknown.
    """
    n_samples = pair.n_samples
    decoder_a = options.decoder_a or options.decoder_b
    if decoder_a:
        decoder_b = options.decoder_b or decoder_a
        names = [(decoder_a, decoder_b)]
        decoders_a = {decoder_a: _find_decoder(pool_a, decoder_a, n_samples)}
        decoders_b = {decoder_b: _find_decoder(pool_b, decoder_b, n_samples)}
        are_decodable = decodable_setups(pair.benchmark_a, decoders_a) and decodable_setups(
            pair.benchmark_b, decoders_b
        )
        if not are_decodable:
            return []
    else:
        decoders_a, decoders_b = _default_decoder_pair(pool_a, pool_b, pair)
        names = [(name, name) for name in decoders_a if name in decoders_b]
    if not names:
        raise InputError(
            f"no common decoder: A has {', '.join(decoders_a)}, and B has "
            f"{', '.join(decoders_b)}. Set `decoder_a` and `decoder_b` to two of these."
        )
    return [
        DecodedPair(
            decode(pair.benchmark_a, decoders_a[name_a], SubsetSpec()),
            decode(pair.benchmark_b, decoders_b[name_b], SubsetSpec()),
        )
        for name_a, name_b in names
    ]


def _default_decoder_pair(
    pool_a: Pool, pool_b: Pool, pair: BenchmarkPair
) -> tuple[dict[str, DecoderSetup], dict[str, DecoderSetup]]:
    """Return the decoders of both sides, of which the common ones are compared."""
    aggregates = [*_compared_aggregates(pool_a), *_compared_aggregates(pool_b)]
    decoders_a = _default_decoders(pool_a, pair.n_samples, aggregates)
    decoders_b = _default_decoders(pool_b, pair.n_samples, aggregates)
    return (
        decodable_setups(pair.benchmark_a, decoders_a),
        decodable_setups(pair.benchmark_b, decoders_b),
    )


def _default_decoders(
    pool: Pool, n_samples: int, aggregates: Sequence[str]
) -> dict[str, DecoderSetup]:
    """Return the decoders of a run; for other datasets, those of all common samples.

    Args:
        pool: The run or dataset.
        n_samples: Number of samples that both sides have.
        aggregates: Aggregates of both sides, by :func:`_compared_aggregates`.
    """
    if pool.run is not None:
        return select_decoders(pool)
    return select_decoders(pool, [n_samples], aggregates)


def _compared_aggregates(pool: Pool) -> list[str]:
    """Return the aggregates of the decoders of a run; else the defaults of the reward models."""
    if pool.run is not None:
        setups = [parse_result_name(name) for name in pool.run.decoders]
        return [setup.aggregate for setup in setups if setup is not None and setup.aggregate]
    return [
        rewards.default_aggregate
        for benchmark in pool.benchmarks.values()
        for rewards in benchmark.main.rewards.values()
    ]


def _find_decoder(pool: Pool, name: str, n_samples: int) -> DecoderSetup:
    """Return the decoder with a result name.

    Raises:
        InputError: if there is none, several reward models could choose, or the decoder needs
            probabilities and has other rewards. The error lists the decoders of the pool.
    """
    setup = parse_result_name(name)
    models = pool.reward_models
    if setup is None or setup.part not in pool.parts or setup.model not in ("", *models):
        raise InputError(
            f"{pool.name} has no such decoder: expected one of {_decoder_names(pool, n_samples)}.",
            field="decoder",
            value=name,
        )
    setups = name_models(setup, models)
    if len(setups) > 1:
        raise InputError(
            f"{pool.name} has several reward models: expected one of "
            f"{', '.join(entry.name for entry in setups)}.",
            field="decoder",
            value=name,
        )
    if not has_fitting_rewards(pool, setups[0]):
        raise InputError(
            f"the rewards of {pool.name} are not probabilities, so they cannot weigh votes: "
            f"expected one of {_decoder_names(pool, n_samples)}.",
            field="decoder",
            value=name,
        )
    return setups[0]


def _decoder_names(pool: Pool, n_samples: int) -> str:
    """Return the names of the decoders of a pool, for errors."""
    return ", ".join(_default_decoders(pool, n_samples, _compared_aggregates(pool)))


def _both_count(pair: BenchmarkPair, samples_a: Samples, samples_b: Samples) -> np.ndarray:
    """Return whether each common problem counts in both datasets.

    Raises:
        InputError: if none does.
    """
    counts_P: np.ndarray = samples_a.counts_P[pair.index_a] & samples_b.counts_P[pair.index_b]
    if not counts_P.any():
        raise InputError(
            f"{pair.name}: no problem counts in both; the gold answers are unreadable."
        )
    return counts_P


def _decoder_difference(pair: BenchmarkPair, decoded: DecodedPair) -> PairedDifference:
    """Return the difference of two decoders."""
    return _paired_difference(
        pair,
        (decoded.a.name, decoded.b.name),
        (decoded.a.correct_P[pair.index_a], decoded.b.correct_P[pair.index_b]),
        _both_count(pair, decoded.a.samples, decoded.b.samples),
    )


def _paired_difference(
    pair: BenchmarkPair,
    measures: tuple[str, str],
    values: tuple[np.ndarray, np.ndarray],
    counts_P: np.ndarray,
) -> PairedDifference:
    """Return the difference of the means of two values per common problem."""
    value_a_P, value_b_P = (value_P[counts_P] for value_P in values)
    problems = [
        benchmark_problem
        for benchmark_problem, counts in zip(pair.problems, counts_P, strict=True)
        if counts
    ]
    clusters = shared_clusters(problems)
    gain_P = value_b_P - value_a_P
    difference = mean_difference(gain_P, clusters)
    is_binary = bool(np.isin([value_a_P, value_b_P], (0, 1)).all())
    if is_binary:
        p = mcnemar(sum_clusters(gain_P, clusters).totals_G)
        difference = replace(difference, p=p)
    return PairedDifference(
        task=pair.name,
        measure_a=measures[0],
        measure_b=measures[1],
        value_a=float(value_a_P.mean()),
        value_b=float(value_b_P.mean()),
        difference=difference,
        only_a=int((gain_P == -1).sum()) if is_binary else None,
        only_b=int((gain_P == 1).sum()) if is_binary else None,
    )


def _number_differences(pair: BenchmarkPair) -> Iterator[PairedDifference]:
    """Yield the differences of all registered numbers that are compared."""
    parts = (pair.benchmark_a.parts, pair.benchmark_b.parts)
    if not all(SAMPLES_PART in part for part in parts):
        return
    samples_a, samples_b = (part[SAMPLES_PART] for part in parts)
    counts_P = _both_count(pair, samples_a, samples_b)
    for number in NUMBERS.values():
        values_a = number.compute(samples_a, {})
        values_b = number.compute(samples_b, {})
        for key_a, key_b in _key_pairs(list(values_a), list(values_b)):
            if number.is_compared(key_a):
                yield _paired_difference(
                    pair,
                    (number.title.format(key=key_a), number.title.format(key=key_b)),
                    (values_a[key_a][pair.index_a], values_b[key_b][pair.index_b]),
                    counts_P,
                )


def _key_pairs(keys_a: Sequence[str], keys_b: Sequence[str]) -> list[tuple[str, str]]:
    """Return the keys to compare: the common ones, or the only key of each pool."""
    if len(keys_a) == len(keys_b) == 1:
        return [(keys_a[0], keys_b[0])]
    return [(key, key) for key in keys_a if key in keys_b]


def _benchmark_means(
    differences: Sequence[PairedDifference], clusters: Mapping[str, Collection[str]]
) -> list[BenchmarkMean]:
    """Return the mean over the benchmarks for each measure that all benchmarks have.

    Every benchmark has the same weight.

    Args:
        differences: The differences by benchmark.
        clusters: Clusters of the compared problems of each benchmark.
    """
    by_measure: Mapping[str, list[PairedDifference]] = defaultdict(list)
    for difference in differences:
        by_measure[difference.measure].append(difference)
    n_tasks = len({difference.task for difference in differences})
    means = []
    for measure, singles in by_measure.items():
        if n_tasks < 2 or len(singles) < n_tasks:
            continue
        values = [single.difference.value for single in singles]
        intervals = [single.difference.ci95 for single in singles]
        means.append(
            BenchmarkMean(
                measure=measure,
                value_a=sum(single.value_a for single in singles) / n_tasks,
                value_b=sum(single.value_b for single in singles) / n_tasks,
                difference=Difference(
                    value=sum(values) / n_tasks,
                    n=sum(single.difference.n for single in singles),
                    ci95=macro_interval(
                        values, intervals, [clusters[single.task] for single in singles]
                    ),
                ),
            )
        )
    return means


def _changed_problems(
    pair: BenchmarkPair, decoded_pairs: Sequence[DecodedPair]
) -> list[ChangedProblem]:
    """Return the problems that only one of two systems solves, for the first certain choices."""
    for decoded in decoded_pairs:
        chosen_a, chosen_b = decoded.a.chosen_indices(), decoded.b.chosen_indices()
        if chosen_a is None or chosen_b is None:
            continue
        counts_P = _both_count(pair, decoded.a.samples, decoded.b.samples)
        gain_P = decoded.b.correct_P[pair.index_b] - decoded.a.correct_P[pair.index_a]
        return [
            ChangedProblem(
                task=pair.name,
                problem_id=benchmark_problem.problem_id,
                question=benchmark_problem.problem.question,
                gold=benchmark_problem.problem.answer,
                answer_a=_chosen_answer(decoded.a, chosen_a, index_a),
                answer_b=_chosen_answer(decoded.b, chosen_b, index_b),
                better="a" if gain < 0 else "b",
            )
            for benchmark_problem, index_a, index_b, gain, counts in zip(
                pair.problems, pair.index_a, pair.index_b, gain_P, counts_P, strict=True
            )
            if counts and gain
        ]
    return []


def _chosen_answer(
    choices: DecoderChoices, chosen: Sequence[int | None], problem: int
) -> str | None:
    """Return the answer that a decoder chose for a problem; None without one."""
    index = chosen[problem]
    return None if index is None else choices.samples.answer_PM[problem, index]
