"""The numbers of a report besides the accuracy of each decoder, such as pass@k.

To add a number, register one more :class:`ReportNumber`. It appears in ``results.json`` and in its
outputs: the terminal, the page, the Markdown report and the Hub. ``diff`` compares it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from fsdpo_bench.decoders.estimators import pass_at_k
from fsdpo_bench.metrics.decoder_choices import DecoderChoices
from fsdpo_bench.metrics.result_records import TaskResults
from fsdpo_bench.metrics.sample_arrays import Samples
from fsdpo_data.core.lazy import np
from fsdpo_data.core.registry import Registry
from fsdpo_data.core.statistics import Mean

if TYPE_CHECKING:
    #: The value of each problem, by key of the number, such as k.
    ProblemValues = Mapping[str, np.ndarray]

#: A place that prints numbers.
Output = Literal["terminal", "page", "markdown", "hub"]

#: Values of k for pass@k, in addition to the number of samples; larger values are skipped.
PASS_AT_K_SIZES = (1, 2, 4, 5, 8, 15, 16, 32, 64)


def format_points(mean: Mean, sign: str = "") -> str:
    """Format a mean with its interval in percent or in points: ``58.3 [54.1, 62.4]``.

    Args:
        mean: The mean.
        sign: ``+`` to write the sign of a positive mean.
    """
    if mean.value is None or mean.ci95 is None:
        return "–"
    low, high = mean.ci95
    return f"{100 * mean.value:{sign}z.1f} [{100 * low:z.1f}, {100 * high:z.1f}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportNumber:
    """A number of a benchmark, with everything that reports need to know about it."""

    name: str  #: Key in ``results.json``.
    title: str  #: Format of its name for readers, such as ``pass@{key}``.
    #: Returns the value of each problem by key, such as k, from the samples and from the choices of
    #: decoders by result name. Values are in [0, 1]; results show their means over the problems
    #: that count. Empty if there is no value.
    compute: Callable[[Samples, Mapping[str, DecoderChoices]], ProblemValues]
    #: Returns whether ``diff`` compares the values of a key.
    is_compared: Callable[[str], bool] = lambda key: True
    outputs: tuple[Output, ...] = ("terminal", "page", "markdown")  #: The places that print it.
    #: Returns the text of a value with its interval.
    format: Callable[[Mean], str] = format_points


class NumberRow(NamedTuple):
    """A value of a number, for a table."""

    title: str  #: Name of the value, such as ``pass@4``.
    text: str  #: The value with its interval.
    mean: Mean  #: The value in ``results.json``.


def number_rows(task_results: TaskResults, output: Output) -> Iterator[NumberRow]:
    """Yield the values of a benchmark that an output prints.

    Args:
        task_results: The results of the benchmark, from ``results.json``.
        output: The place that prints them.
    """
    for number in NUMBERS.values():
        if output in number.outputs:
            for key, mean in task_results.numbers.get(number.name, {}).items():
                yield NumberRow(number.title.format(key=key), number.format(mean), mean)


def _average_at_k(samples: Samples, _decoded: Mapping[str, DecoderChoices]) -> ProblemValues:
    """Return the fraction of correct samples, by the number of samples."""
    return {str(samples.n_samples): samples.is_correct_PM.mean(axis=1)}


def _pass_at_k(samples: Samples, _decoded: Mapping[str, DecoderChoices]) -> ProblemValues:
    """Return the probability that one of k samples is correct, by k."""
    n_samples = samples.n_samples
    n_correct_P = samples.is_correct_PM.sum(axis=1).tolist()
    sizes = sorted({size for size in PASS_AT_K_SIZES if size <= n_samples} | {n_samples})
    return {
        str(size): np.array([pass_at_k(n_samples, count, size) for count in n_correct_P])
        for size in sizes
    }


def _majority_at_k(_samples: Samples, decoded: Mapping[str, DecoderChoices]) -> ProblemValues:
    """Return the accuracy of the majority vote, by k."""
    return {
        str(choices.setup.k): choices.correct_P
        for choices in decoded.values()
        if choices.setup.decoder.is_vote
    }


NUMBERS: Registry[ReportNumber] = Registry("report number", ReportNumber)
NUMBERS.register(
    ReportNumber(
        name="avg_at_k",
        title="avg@{key}",
        compute=_average_at_k,
        outputs=("terminal", "page", "markdown", "hub"),
    )
)
NUMBERS.register(
    ReportNumber(
        name="pass_at_k",
        title="pass@{key}",
        compute=_pass_at_k,
        is_compared=lambda key: key != "1",  # pass@1 is avg@k
        outputs=("page", "markdown"),
    )
)
NUMBERS.register(
    ReportNumber(
        name="maj_at_k",
        title="maj@{key}",
        compute=_majority_at_k,
        is_compared=lambda key: False,  # the accuracy of `sc` is compared
        outputs=("page", "markdown"),  # the terminal has the accuracy of `sc`
    )
)
