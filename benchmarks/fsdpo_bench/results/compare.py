"""Compare two runs on the same problems: paired differences, and problems that changed."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from fsdpo_bench.results.numbers import NUMBERS, ReportNumber
from fsdpo_bench.results.outcomes import (
    DecoderAnswer,
    ProblemResult,
    problem_clusters,
    read_problem_results,
)
from fsdpo_bench.runs.records import RunConfig, read_config, read_records
from fsdpo_bench.tasks.table import is_same_name
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.statistics import (
    Interval,
    macro_interval,
    mcnemar,
    mean_difference,
    sum_clusters,
)

MEAN_TITLE = "mean"  #: Name of the mean over all compared benchmarks, in place of a benchmark.

#: Results by problem id and number of earlier records with this id.
ProblemResults = Mapping[tuple[str, int], ProblemResult]
ResultPairs = Sequence[tuple[ProblemResult, ProblemResult]]  #: Results of a problem in both runs.


@dataclass(frozen=True, slots=True)
class ChangedProblem:
    """A problem that only one of two systems solves; a system is a decoder of a run."""

    task: str  #: Name of the benchmark.
    problem_id: str  #: Content id of the problem.
    question: str  #: The question.
    gold: str  #: The gold answer.
    answer_a: str | None  #: The first system's answer.
    answer_b: str | None  #: The second system's answer.
    better: str  #: The system that solves the problem: ``a`` or ``b``.


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The difference of two numbers over the same problems, or over the same benchmarks."""

    task: str  #: Name of the benchmark; ``mean`` for the mean over all compared benchmarks.
    measure_a: str  #: What is compared in the first run: a decoder, or a mean such as ``avg@8``.
    measure_b: str  #: What is compared in the second run.
    value_a: float  #: The first run's accuracy or mean.
    value_b: float  #: The second run's accuracy or mean.
    n: int  #: Problems that count in both runs; unreadable gold answers do not count.
    difference: float  #: The second run's value minus the value of the first.
    ci95: Interval  #: 95 % interval of the difference, over problems or clusters.
    #: p-value of a difference of zero, over problems or clusters: of the exact McNemar test for
    #: decoders, and of Student's t test for means; None for a mean over benchmarks.
    p: float | None
    clusters: int | None = None  #: Number of base problems, if several problems share one.
    only_a: int | None = None  #: Problems that only the first decoder solves; None for means.
    only_b: int | None = None  #: Problems that only the second decoder solves; None for means.

    @property
    def measure(self) -> str:
        """The name of both measures, or their names if they differ."""
        return " / ".join(dict.fromkeys((self.measure_a, self.measure_b)))


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The comparison of two runs."""

    deltas: Sequence[PairedDifference]  #: Differences by benchmark and pair of decoders.
    #: Differences of avg@k and pass@k by benchmark, then the means over the benchmarks.
    means: Sequence[PairedDifference]
    #: Problems whose verdict changed, for the first pair of decoders of each benchmark.
    changed: Sequence[ChangedProblem]
    #: Warnings for the reader: omitted problems, and graders or prompts that differ.
    notes: Sequence[str]


class ComparisonOptions(Options):
    """The benchmarks, decoders and problems of a comparison."""

    task: str | None = None
    """Compare only this benchmark."""
    decoder_a: Annotated[str | None, Option(flags=["--decoder"], default_text="all")] = None
    """Decoder of the first run. By default, each decoder that both runs have is compared with
    itself.
    """
    decoder_b: Annotated[str | None, Option(default_text="that of the first run")] = None
    """Decoder of the second run. Given alone, it applies to both runs."""
    common: bool = False
    """Compare the common problems if the runs have different problems."""


def compare_runs(run_a: Path, run_b: Path, options: ComparisonOptions) -> RunComparison:
    """Compare two runs problem by problem.

    Raises:
        InputError: if the runs have no common benchmark or decoder, or different problems without
            ``common``.
    """
    configs = (read_config(run_a), read_config(run_b))
    tasks_a = _read_results(run_a)
    tasks_b = _read_results(run_b)
    tasks = [
        name
        for name in tasks_a
        if name in tasks_b and (options.task is None or is_same_name(options.task, name))
    ]
    if not tasks:
        message = (
            f"the runs have no common benchmark: {run_a} has {', '.join(tasks_a)}, "
            f"{run_b} has {', '.join(tasks_b)}"
        )
        if options.task:
            message += f", and `task` is {options.task}"
        raise InputError(f"{message}.")
    notes = _config_differences(configs)
    deltas: list[PairedDifference] = []
    means: list[PairedDifference] = []
    changed: list[ChangedProblem] = []
    for task in tasks:
        pairs, note = _pair_results(task, tasks_a[task], tasks_b[task], common=options.common)
        if note:
            notes.append(note)
        for index, (decoder_a, decoder_b) in enumerate(_decoder_pairs(pairs, options)):
            answer_pairs = _counted_answers(task, pairs, decoder_a, decoder_b)
            deltas.append(_decoder_difference(task, decoder_a, decoder_b, answer_pairs))
            if index == 0:
                changed += _changed_problems(answer_pairs)
        if options.decoder_a is None and options.decoder_b is None:
            means += _number_differences(task, pairs)
    means += _benchmark_means([*deltas, *means])
    return RunComparison(deltas=deltas, means=means, changed=changed, notes=notes)


def _read_results(run: Path) -> dict[str, ProblemResults]:
    """Return the problem results of a run by benchmark and key."""
    tasks = read_problem_results(read_records(run))
    if not tasks:
        raise InputError(f"{run} contains no records. Continue the run with `resume=True`.")
    return {name: {result.key: result for result in results} for name, results in tasks.items()}


def _config_differences(configs: Sequence[RunConfig]) -> list[str]:
    """Describe differences besides the models that make the numbers hard to compare."""
    templates = [config.template for config in configs]
    settings: Mapping[str, Sequence[object]] = {
        "graders": [config.grader for config in configs],
        "prompt templates": [f"{entry.name} ({entry.digest})" for entry in templates],
        "token limits of a solution": [config.sampling.max_tokens for config in configs],
    }
    return [
        f"the {name} differ: {value_a} and {value_b}"
        for name, (value_a, value_b) in settings.items()
        if value_a != value_b
    ]


def _pair_results(
    task: str, results_a: ProblemResults, results_b: ProblemResults, *, common: bool
) -> tuple[ResultPairs, str]:
    """Pair the results of the common problems; also return a note if the problems differ."""
    pairs = [(result, results_b[key]) for key, result in results_a.items() if key in results_b]
    n_only_a = len(results_a) - len(pairs)
    n_only_b = len(results_b) - len(pairs)
    message = (
        f"{task}: {len(pairs)} problems are in both runs, {n_only_a} only in the first and "
        f"{n_only_b} only in the second"
    )
    if not pairs:
        raise InputError(
            f"{message}. The comparison needs common problems: check `data` and `limit`."
        )
    is_equal = n_only_a == 0 and n_only_b == 0
    if not is_equal and not common:
        raise InputError(f"{message}. Set `common=True` to compare the common problems.")
    return pairs, "" if is_equal else message


def _decoder_pairs(pairs: ResultPairs, options: ComparisonOptions) -> list[tuple[str, str]]:
    """Return the pairs of decoders to compare; the decoders of a run are equal for all problems."""
    decoders_a = pairs[0][0].decoder_answers
    decoders_b = pairs[0][1].decoder_answers
    for result_a, result_b in pairs:
        for result, decoders in ((result_a, decoders_a), (result_b, decoders_b)):
            if result.decoder_answers.keys() != decoders.keys():
                raise InputError(
                    f"problem {result.key[0]}: the record has other decoders than the first "
                    "problem, so the run is damaged. Decode the benchmark again."
                )
    decoder_a = options.decoder_a or options.decoder_b
    if decoder_a:
        requested_pairs = [(decoder_a, options.decoder_b or decoder_a)]
    else:
        requested_pairs = [(name, name) for name in decoders_a]
    decoder_pairs = [(a, b) for a, b in requested_pairs if a in decoders_a and b in decoders_b]
    if not decoder_pairs:
        problem = "the runs have no common decoder"
        if decoder_a:
            name_a, name_b = requested_pairs[0]
            problem = f"no decoder {name_a!r} in the first run or {name_b!r} in the second"
        raise InputError(
            f"{problem}: they have {', '.join(decoders_a)} and {', '.join(decoders_b)}. Set "
            "`decoder_a` and `decoder_b` to two of these."
        )
    return decoder_pairs


class _AnswerPair(NamedTuple):
    """Two answers to a problem that counts in both runs."""

    problem: ProblemResult  #: The problem in the first run.
    answer_a: DecoderAnswer  #: The first system's answer.
    answer_b: DecoderAnswer  #: The second system's answer.

    @property
    def gain(self) -> int:
        """1 if only the second answer is correct, -1 if only the first is correct, else 0."""
        return int(bool(self.answer_b.correct)) - int(bool(self.answer_a.correct))


def _counted_answers(
    task: str, pairs: ResultPairs, decoder_a: str, decoder_b: str
) -> list[_AnswerPair]:
    """Return the answers to the problems that count in both runs."""
    answer_pairs = []
    for result_a, result_b in pairs:
        answer_a = result_a.decoder_answers[decoder_a]
        answer_b = result_b.decoder_answers[decoder_b]
        if answer_a.correct is not None and answer_b.correct is not None:
            answer_pairs.append(_AnswerPair(result_a, answer_a, answer_b))
    if not answer_pairs:
        raise InputError(
            f"{task}: no problem counts in both runs; the gold answers are unreadable."
        )
    return answer_pairs


def _decoder_difference(
    task: str, decoder_a: str, decoder_b: str, answer_pairs: Sequence[_AnswerPair]
) -> PairedDifference:
    """Return the difference of two decoders with its interval and p-value."""
    gains = [pair.gain for pair in answer_pairs]
    clusters = problem_clusters(pair.problem for pair in answer_pairs)
    mean = mean_difference(gains, clusters)
    return PairedDifference(
        task=task,
        measure_a=decoder_a,
        measure_b=decoder_b,
        value_a=sum(bool(pair.answer_a.correct) for pair in answer_pairs) / mean.n,
        value_b=sum(bool(pair.answer_b.correct) for pair in answer_pairs) / mean.n,
        n=mean.n,
        difference=mean.value,
        ci95=mean.ci95,
        p=mcnemar(sum_clusters(gains, clusters).totals_G),
        clusters=mean.clusters,
        only_a=gains.count(-1),
        only_b=gains.count(1),
    )


def _number_differences(task: str, pairs: ResultPairs) -> Iterator[PairedDifference]:
    """Yield the differences of all registered numbers with a value per problem."""
    for number in NUMBERS.values():
        if number.problem_value is None:
            continue
        keys_a = number.compute([result for result, _ in pairs])
        keys_b = number.compute([result for _, result in pairs])
        for key_a, key_b in _key_pairs(list(keys_a), list(keys_b)):
            difference = _number_difference(task, pairs, number, key_a, key_b)
            if difference is not None:
                yield difference


def _key_pairs(keys_a: Sequence[str], keys_b: Sequence[str]) -> list[tuple[str, str]]:
    """Return the keys to compare: the common ones, or the only key of each run."""
    if len(keys_a) == len(keys_b) == 1:
        return [(keys_a[0], keys_b[0])]
    return [(key, key) for key in keys_a if key in keys_b]


def _number_difference(
    task: str, pairs: ResultPairs, number: ReportNumber, key_a: str, key_b: str
) -> PairedDifference | None:
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
    return PairedDifference(
        task=task,
        measure_a=number.title.format(key=key_a),
        measure_b=number.title.format(key=key_b),
        value_a=sum(values_a) / mean.n,
        value_b=sum(values_b) / mean.n,
        n=mean.n,
        difference=mean.value,
        ci95=mean.ci95,
        p=mean.p,
        clusters=mean.clusters,
    )


def _benchmark_means(differences: Sequence[PairedDifference]) -> Iterator[PairedDifference]:
    """Yield the mean over the benchmarks for each measure that all benchmarks have.

    Every benchmark has the same weight.
    """
    by_measure: Mapping[str, list[PairedDifference]] = defaultdict(list)
    for difference in differences:
        by_measure[difference.measure].append(difference)
    n_tasks = len({difference.task for difference in differences})
    for singles in by_measure.values():
        if n_tasks < 2 or len(singles) < n_tasks:
            continue
        values = [single.difference for single in singles]
        yield PairedDifference(
            task=MEAN_TITLE,
            measure_a=singles[0].measure_a,
            measure_b=singles[0].measure_b,
            value_a=sum(single.value_a for single in singles) / n_tasks,
            value_b=sum(single.value_b for single in singles) / n_tasks,
            n=sum(single.n for single in singles),
            difference=sum(values) / n_tasks,
            ci95=macro_interval(values, [single.ci95 for single in singles]),
            p=None,
        )


def _changed_problems(answer_pairs: Sequence[_AnswerPair]) -> list[ChangedProblem]:
    """Return the problems that only one of the two systems solves."""
    return [
        ChangedProblem(
            task=pair.problem.task,
            problem_id=pair.problem.key[0],
            question=pair.problem.question,
            gold=pair.problem.gold,
            answer_a=pair.answer_a.answer,
            answer_b=pair.answer_b.answer,
            better="a" if pair.gain < 0 else "b",
        )
        for pair in answer_pairs
        if pair.gain
    ]
