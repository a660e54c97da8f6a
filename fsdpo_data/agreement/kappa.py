"""Cohen's kappa of two labellers, with an interval that is clustered by problem."""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from fsdpo_data.core.statistics import effective_sample_size, mean_interval, wilson_interval

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class StepAgreement:
    """The agreement of two labellers on steps, always with both base rates."""

    steps: int  #: Number of steps.
    problems: int  #: Number of problems.
    reference_right: float  #: Base rate: fraction of steps that the reference calls right.
    labeller_right: float  #: Base rate: fraction of steps that the labeller calls right.
    agreement: float  #: Fraction of steps with equal labels.
    agreement_ci95: Interval | None  #: 95 % interval over problems; None below two problems.
    kappa: float | None  #: Cohen's kappa; None if both labellers give all steps the same label.
    kappa_ci95: Interval | None  #: 95 % interval over problems; None below two problems.


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
    groups: dict[Hashable, list[int]] = defaultdict(lambda: [0, 0])
    for problem, first, second in zip(problems, reference, labeller, strict=True):
        groups[problem][0] += first == second
        groups[problem][1] += 1
    has_interval = len(groups) > 1
    return StepAgreement(
        steps=n,
        problems=len(groups),
        reference_right=sum(reference) / n,
        labeller_right=sum(labeller) / n,
        agreement=sum(equal for equal, _ in groups.values()) / n,
        agreement_ci95=(
            mean_interval([(equal, count) for equal, count in groups.values()])
            if has_interval
            else None
        ),
        kappa=cohen_kappa(reference, labeller),
        kappa_ci95=kappa_interval(problems, reference, labeller) if has_interval else None,
    )


def cohen_kappa(reference: Sequence[bool], labeller: Sequence[bool]) -> float | None:
    """Return Cohen's kappa (Cohen 1960): the agreement above chance, as a fraction of its maximum.

    The result is None if both labellers give all items the same label.
    """
    n = len(reference)
    agreed = sum(first == second for first, second in zip(reference, labeller, strict=True))
    n_reference = sum(reference)
    n_labeller = sum(labeller)
    # Integers up to the last division, so the result has the rounding of one division.
    expected = n_reference * n_labeller + (n - n_reference) * (n - n_labeller)
    if expected == n * n:
        return None
    return (n * agreed - expected) / (n * n - expected)


def kappa_interval(
    problems: Sequence[Hashable], reference: Sequence[bool], labeller: Sequence[bool]
) -> Interval | None:
    """Return a 95 % interval of Cohen's kappa, with problems as the independent units.

    The variance of the linearised kappa (Fleiss, Cohen & Everitt 1969) is summed within problems.
    The interval is Wilson's of (1 + kappa) / 2 at the effective sample size. It stays in [-1, 1],
    and has a width even if all labels agree. ``benchmarks/intervals/interval_coverage.py`` measures
    how often it contains kappa. It is None below two problems, or without a kappa.
    """
    kappa = cohen_kappa(reference, labeller)
    if kappa is None or len(set(problems)) < 2:
        return None
    n = len(reference)
    agreement = sum(a == b for a, b in zip(reference, labeller, strict=True)) / n
    rate_a = sum(reference) / n
    rate_b = sum(labeller) / n
    chance_gap = 1 - rate_a * rate_b - (1 - rate_a) * (1 - rate_b)
    deviations: dict[Hashable, float] = defaultdict(float)
    for problem, a, b in zip(problems, reference, labeller, strict=True):
        chance_change = (2 * rate_b - 1) * (a - rate_a) + (2 * rate_a - 1) * (b - rate_b)
        deviations[problem] += (
            ((a == b) - agreement) / chance_gap - (1 - agreement) / chance_gap**2 * chance_change
        ) / n
    position = (1 + kappa) / 2
    # One pseudo-value per problem: the variance of their mean is the clustered variance of kappa.
    groups = [(position + len(deviations) * value / 2, 1.0) for value in deviations.values()]
    # The worst case of the next problem: all of its steps are labelled at odds.
    imagined = (0.0 if position > 0.5 else 1.0, 1.0)
    n_groups = len(groups)
    extended = (n_groups * position + imagined[0]) / (n_groups + 1)
    size = effective_sample_size(
        [*groups, imagined], variance=extended * (1 - extended), max_size=n
    )
    size *= n_groups / (n_groups + 1)
    low, high = wilson_interval(size * position, size) or (0.0, 1.0)
    return max(-1.0, 2 * low - 1), min(1.0, 2 * high - 1)


def harmonic_mean(first: float, second: float) -> float:
    """Return the harmonic mean of two fractions; 0 if both are 0."""
    total = first + second
    return 2 * first * second / total if not math.isclose(total, 0) else 0.0
