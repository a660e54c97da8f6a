"""Cohen's kappa of two labellers, with an interval that is clustered by problem."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from fsdpo_data.core.lazy import np
from fsdpo_data.core.statistics import Interval, bootstrap_interval, mean_rate, sum_clusters


@dataclass(frozen=True, slots=True)
class StepAgreement:
    """The agreement of two labellers on steps, always with both base rates."""

    steps: int  #: Number of steps.
    problems: int  #: Number of problems.
    reference_right: float  #: Base rate: fraction of steps that the reference calls right.
    labeller_right: float  #: Base rate: fraction of steps that the labeller calls right.
    agreement: float  #: Fraction of steps with equal labels.
    agreement_ci95: Interval  #: 95 % interval over problems.
    kappa: float | None  #: Cohen's kappa; None if both labellers give all steps the same label.
    #: 95 % interval over problems; None below two problems, and if all labels agree.
    kappa_ci95: Interval | None


def measure_agreement(
    problems: Sequence[Hashable], reference: Sequence[bool], labeller: Sequence[bool]
) -> StepAgreement | None:
    """Return the agreement on steps; None without steps.

    Args:
        problems: The problem of each step. Steps of different problems are independent.
        reference: Labels of one labeller, True for a right step.
        labeller: Labels of the other labeller.
    """
    n = len(reference)
    if not n:
        return None
    agreement = mean_rate(np.equal(reference, labeller), problems)
    assert agreement.value is not None and agreement.ci95 is not None  # there are steps
    assert agreement.clusters is not None
    return StepAgreement(
        steps=n,
        problems=agreement.clusters,
        reference_right=sum(reference) / n,
        labeller_right=sum(labeller) / n,
        agreement=agreement.value,
        agreement_ci95=agreement.ci95,
        kappa=cohen_kappa(reference, labeller),
        kappa_ci95=kappa_interval(problems, reference, labeller),
    )


def cohen_kappa(reference: Sequence[bool], labeller: Sequence[bool]) -> float | None:
    """Return Cohen's kappa (Cohen 1960): the agreement above chance, as a fraction of its maximum.

    The result is None if both labellers give all items the same label.
    """
    n_both = sum(first and second for first, second in zip(reference, labeller, strict=True))
    kappa = float(_kappa(len(reference), sum(reference), sum(labeller), n_both))
    return None if np.isnan(kappa) else kappa


def _kappa(
    n: np.ndarray | int,
    n_reference: np.ndarray | int,
    n_labeller: np.ndarray | int,
    n_both: np.ndarray | int,
) -> np.ndarray:
    """Return kappa from counts; NaN if both labellers give all items the same label.

    Args:
        n: Number of items.
        n_reference: Number of items that the reference calls right.
        n_labeller: Number of items that the labeller calls right.
        n_both: Number of items that both call right.
    """
    # Integers up to the last division, so the result has the rounding of one division.
    agreed = n - n_reference - n_labeller + 2 * n_both
    expected = n_reference * n_labeller + (n - n_reference) * (n - n_labeller)
    total = n * n
    is_defined = np.not_equal(expected, total)
    kappa: np.ndarray = (n * agreed - expected) / np.where(is_defined, total - expected, 1)
    return np.where(is_defined, kappa, np.nan)


def kappa_interval(
    problems: Sequence[Hashable], reference: Sequence[bool], labeller: Sequence[bool]
) -> Interval | None:
    """Return the bootstrap interval of Cohen's kappa, with problems as the independent units.

    ``benchmarks/measured/intervals.txt`` has its coverage. It is None
    below two problems, without a kappa, and if all labels agree.
    """
    columns = (np.ones(len(problems)), reference, labeller, np.logical_and(reference, labeller))
    sums_CG = np.array([sum_clusters(column, problems).totals_G for column in columns], dtype=int)

    def resampled_kappas(counts_DG: np.ndarray) -> np.ndarray:
        return _kappa(*(sums_CG @ counts_DG.T))

    return bootstrap_interval(resampled_kappas, sums_CG.shape[1])
