"""The numbers of a report besides the accuracy of each decoder, such as pass@k.

To add a number, register one more :class:`ReportNumber`. It appears in ``results.json`` and in its
outputs: the terminal, the page, the Markdown report and the Hub.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fsdpo_bench.decoders import parse_result_name
from fsdpo_bench.metrics.choices import pass_at_k
from fsdpo_bench.results.outcomes import ProblemResult, problem_clusters
from fsdpo_bench.results.result_types import (
    AccuracyDrop,
    AccuracyResult,
    RewardBin,
    TaskResults,
)
from fsdpo_data.core.entities import UNDECIDED
from fsdpo_data.core.registry import Registry
from fsdpo_data.core.statistics import Mean, mean_rate

#: A place that prints numbers.
Output = Literal["terminal", "page", "markdown", "hub"]

#: Values of k for pass@k, in addition to the number of samples; larger values are skipped.
PASS_AT_K_SIZES = (1, 2, 4, 5, 8, 15, 16, 32, 64)


def format_points(result: AccuracyResult | AccuracyDrop | RewardBin | Mean) -> str:
    """Format an accuracy, or an accuracy drop, with its interval: ``58.3 [54.1, 62.4]``."""
    if result.value is None or result.ci95 is None:
        return "–"
    low, high = result.ci95
    return f"{100 * result.value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportNumber:
    """A number of a benchmark, with everything that reports need to know about it."""

    name: str  #: Key in ``results.json``.
    title: str  #: Format of its name for readers, such as ``pass@{key}``.
    #: Returns the values with their intervals by key, such as k; empty if there is no value.
    compute: Callable[[Sequence[ProblemResult]], Mapping[str, Mean]]
    #: Returns a problem's value for a key, or None if the problem does not count; ``diff`` compares
    #: the means of these values. None for numbers that it does not compare.
    problem_value: Callable[[ProblemResult, str], float | None] | None = None
    outputs: tuple[Output, ...] = ("terminal", "page", "markdown")  #: The places that print it.
    #: Returns the text of a value with its interval.
    format: Callable[[AccuracyResult], str] = format_points


class NumberRow(NamedTuple):
    """A value of a number, for a table."""

    title: str  #: Name of the value, such as ``pass@4``.
    text: str  #: The value with its interval.
    result: AccuracyResult  #: The value in ``results.json``.


def number_rows(task_results: TaskResults, output: Output) -> Iterator[NumberRow]:
    """Yield the values of a benchmark that an output prints.

    Args:
        task_results: The results of the benchmark, from ``results.json``.
        output: The place that prints them.
    """
    for number in NUMBERS.values():
        if output in number.outputs:
            for key, result in task_results.numbers.get(number.name, {}).items():
                yield NumberRow(number.title.format(key=key), number.format(result), result)


def decoder_accuracy(
    results: Sequence[ProblemResult],
    decoder: str,
    *,
    strict: bool = False,
    undecided_is_correct: bool = False,
    without_judge: bool = False,
) -> Mean:
    """Return the accuracy of a decoder, clustered if problems share base problems.

    With ``strict``, the tolerance of the benchmark does not apply. Undecided answers count as
    wrong, or as correct with ``undecided_is_correct``. With ``without_judge``, the answers that a
    judge decided are undecided.
    """
    counted_results = []
    verdicts = []
    for result in results:
        answer = result.decoder_answers.get(decoder)
        if answer is not None and answer.correct is not None:
            counted_results.append(result)
            is_undecided = answer.status == UNDECIDED or (without_judge and answer.has_judge_rule)
            is_correct = bool(answer.strict if strict else answer.correct)
            verdicts.append(int(undecided_is_correct if is_undecided else is_correct))
    return mean_rate(verdicts, problem_clusters(counted_results))


def _sampled_results(results: Sequence[ProblemResult]) -> list[ProblemResult]:
    """Return the problems with graded samples."""
    return [result for result in results if result.graded_samples]


def _min_samples(sampled: Sequence[ProblemResult]) -> int:
    """Return the number of graded samples that every problem has."""
    return min((result.graded_samples for result in sampled), default=0)


def _average_at_k(results: Sequence[ProblemResult]) -> dict[str, Mean]:
    """Return the mean accuracy of the samples, by their number."""
    sampled = _sampled_results(results)
    if not sampled:
        return {}
    k = _min_samples(sampled)
    accuracies = [_sample_accuracy(result, str(k)) or 0.0 for result in sampled]
    return {str(k): mean_rate(accuracies, problem_clusters(sampled))}


def _sample_accuracy(result: ProblemResult, _key: str) -> float | None:
    """Return the accuracy of a problem's samples; None without graded samples."""
    return result.correct_samples / result.graded_samples if result.graded_samples else None


def _pass_probability(result: ProblemResult, key: str) -> float | None:
    """Return the probability that one of k samples of a problem is correct; None without k."""
    k = int(key)
    # pass@1 is avg@k.
    if not 1 < k <= result.graded_samples:
        return None
    return pass_at_k(result.graded_samples, result.correct_samples, k)


def _pass_at_k(results: Sequence[ProblemResult]) -> dict[str, Mean]:
    """Return the probability that one of k samples is correct, by k."""
    sampled = _sampled_results(results)
    if not sampled:
        return {}
    max_k = _min_samples(sampled)
    clusters = problem_clusters(sampled)
    means = {}
    for k in sorted({size for size in PASS_AT_K_SIZES if size <= max_k} | {max_k}):
        probabilities = [
            pass_at_k(result.graded_samples, result.correct_samples, k) for result in sampled
        ]
        means[str(k)] = mean_rate(probabilities, clusters)
    return means


def _majority_at_k(results: Sequence[ProblemResult]) -> dict[str, Mean]:
    """Return the accuracy of the decoder with the metric ``maj``, by k."""
    return {
        str(setup.k): decoder_accuracy(results, name)
        for name in results[0].decoder_answers
        if (setup := parse_result_name(name)) and setup.decoder.metric == "maj"
    }


NUMBERS: Registry[ReportNumber] = Registry("report number", ReportNumber)
NUMBERS.register(
    ReportNumber(
        name="avg_at_k",
        title="avg@{key}",
        compute=_average_at_k,
        problem_value=_sample_accuracy,
        outputs=("terminal", "page", "markdown", "hub"),
    )
)
NUMBERS.register(
    ReportNumber(
        name="pass_at_k",
        title="pass@{key}",
        compute=_pass_at_k,
        problem_value=_pass_probability,
        outputs=("page", "markdown"),
    )
)
NUMBERS.register(
    ReportNumber(
        name="maj_at_k",
        title="maj@{key}",
        compute=_majority_at_k,
    )
)
