"""Compare two labellers: kappa with base rates, first errors, and a threshold from other problems.

First errors are scored as in ProcessBench (Zheng et al. 2024). Two accuracies count solutions with
and without an error. F1 is their harmonic mean.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, NamedTuple

from fsdpo_data.agreement.kappa import StepAgreement, measure_agreement
from fsdpo_data.agreement.labels import ANY_CORRECT, read_labeller
from fsdpo_data.core.options import NotWith, OnlyWith, Option, Options
from fsdpo_data.core.sampling import Seed
from fsdpo_data.core.statistics import Interval, Mean, mean_rate
from fsdpo_data.steps.first_error import (
    NO_ERROR,
    best_threshold,
    f1_of_hits,
    find_first_wrong,
    find_hits,
    threshold_candidates,
)

MAX_POSITION = 10  #: Steps from this position on share a row.


class AgreeOptions(Options):
    """Measure how far two labellers of steps agree, with the base rate of each.

    A labeller is DATA or DATA:LABELS. LABELS is one of ``imported`` (people), ``rollouts``
    (continuations, or votes of a judge), ``first-error``, ``rewards`` (a reward model) and
    ``outcome``. Without LABELS, the command takes the labels that were made last. Both datasets
    contain the same solutions. Each kappa is printed with the base rates.

    Examples:
        fsdpo-data agree runs/people runs/judged

        fsdpo-data agree runs/people:imported runs/scored:rewards --threshold 0.4

        fsdpo-data agree runs/people runs/judged --calibrate f1 --json

        fsdpo-data agree runs/people runs/imported-again --match text
    """

    reference: Annotated[str, Option(positional=True, metavar="A[:LABELS]")]
    """The labels that count as true."""
    labeller: Annotated[str, Option(positional=True, metavar="B[:LABELS]")]
    """The labels to compare with the reference."""
    threshold: Annotated[float | None, NotWith("calibrate")] = None
    """Smallest score of a right step of the labeller. The default is 0.5, and any correct
    continuation for Monte-Carlo labels. Rewards that are not probabilities have no default.
    """
    reference_threshold: float | None = None
    """The same for the reference."""
    calibrate: Literal["f1", "kappa"] | None = None
    """Choose the threshold, or the number of votes, that maximises this number on half of the
    problems. All printed numbers come from the other half.
    """
    match: Literal["id", "text"] = "id"
    """Match the solutions of the datasets by their ids, or by the texts of question and steps. Use
    `text` for datasets that were imported or built separately.
    """
    seed: Annotated[Seed, OnlyWith("calibrate")] = 0
    """Seed of the halves."""
    as_json: Annotated[bool, Option(flags=["--json"])] = False
    """Print the numbers as JSON."""


@dataclass(frozen=True, slots=True)
class FirstErrorAgreement:
    """How often the labeller names the first error of the reference."""

    f1: float | None  #: Harmonic mean of the two accuracies; None if one of them is None.
    with_error: Mean  #: Fraction of solutions with an error whose first wrong step is named.
    without_error: Mean  #: Fraction of solutions without an error that the labeller passes.


@dataclass(frozen=True, slots=True)
class LabelAgreement:
    """The agreement on a part of the steps."""

    steps: StepAgreement  #: Agreement on steps.
    first_errors: FirstErrorAgreement | None  #: None for steps of one position.


@dataclass(frozen=True, slots=True)
class AgreementReport:
    """The agreement of two labellers."""

    reference: str  #: The labels that count as true.
    labeller: str  #: The labels that are compared.
    reference_threshold: float  #: Smallest score of a right step of the reference.
    threshold: float  #: Smallest score of a right step of the labeller.
    threshold_source: str  #: Origin of the threshold, in words.
    solutions: int  #: Solutions that are compared.
    only_reference: int  #: Solutions that only the reference labels.
    only_labeller: int  #: Solutions that only the labeller labels.
    other_steps: int  #: Solutions of both with different steps, which are left out.
    total: LabelAgreement  #: Agreement on all steps.
    #: Agreement on the steps before the last of each solution; None if all have one step. Labels
    #: that come from outcomes agree at the last step by construction.
    before_last: LabelAgreement | None
    by_source: dict[str, LabelAgreement]  #: Agreement by source of the problem.
    by_position: dict[str, LabelAgreement]  #: Agreement by number of the step, from 1.

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self)


class _SolutionPair(NamedTuple):
    """A solution with the labels of the reference and the scores of the labeller."""

    problem: str  #: Id of the problem.
    source: str  #: Source of the problem.
    truth: list[bool]  #: Labels of the reference.
    scores: Sequence[float]  #: Scores of the labeller.

    @property
    def first_error(self) -> int:
        """The first wrong step of the reference, or ``NO_ERROR``."""
        return find_first_wrong(not is_right for is_right in self.truth)


def compare_labellers(options: AgreeOptions) -> AgreementReport:
    """Compare two labellers of the same solutions.

    Raises:
        InputError: if they have no solution in common, or labels are missing.
    """
    reference = read_labeller(
        options.reference, options.reference_threshold, "reference", match=options.match
    )
    labeller = read_labeller(
        options.labeller,
        options.threshold,
        "labeller",
        is_calibrated=options.calibrate is not None,
        match=options.match,
    )
    common = [key for key in reference.solutions if key in labeller.solutions]
    pairs = []
    for key in common:
        first = reference.solutions[key]
        second = labeller.solutions[key]
        if first.text_hash == second.text_hash:
            truth = [score >= reference.threshold for score in first.scores]
            pairs.append(_SolutionPair(first.problem, first.source, truth, second.scores))
    if not pairs:
        raise options.field_error(
            "labeller",
            f"{reference.name} and {labeller.name} label no common solution with the same steps. "
            + _no_match_advice(options.match),
        )
    threshold, source = labeller.threshold, "given" if options.threshold is not None else "default"
    test_pairs = pairs
    if options.calibrate is not None:
        tuning = [pair for pair in pairs if _is_tuning(pair.problem, options.seed)]
        test_pairs = [pair for pair in pairs if not _is_tuning(pair.problem, options.seed)]
        if not tuning or not test_pairs:
            raise options.field_error("calibrate", "expected two problems or more in common.")
        threshold = _best_threshold(tuning, options.calibrate)
        n_problems = len({pair.problem for pair in tuning})
        source = f"highest {options.calibrate} on {n_problems} other problems"
        if labeller.votes:
            votes = round(threshold * labeller.votes)
            source += f"; {votes} of {labeller.votes} votes or continuations make a step right"
    by_source: dict[str, list[_SolutionPair]] = defaultdict(list)
    for pair in test_pairs:
        by_source[pair.source].append(pair)
    return AgreementReport(
        reference=reference.name,
        labeller=labeller.name,
        reference_threshold=reference.threshold,
        threshold=threshold,
        threshold_source=source,
        solutions=len(test_pairs),
        only_reference=len(reference.solutions) - len(common),
        only_labeller=len(labeller.solutions) - len(common),
        other_steps=len(common) - len(pairs),
        total=_measure(test_pairs, threshold),
        before_last=_before_last(test_pairs, threshold),
        by_source={name: _measure(by_source[name], threshold) for name in sorted(by_source)},
        by_position=_by_position(test_pairs, threshold),
    )


def _no_match_advice(match: str) -> str:
    """Return the next step for datasets without a common solution."""
    if match == "text":
        return "The texts of all questions or steps differ. Label copies of one dataset."
    return (
        "Label copies of one dataset. If the datasets have the same texts with other ids, use "
        "`match=text`."
    )


def _is_tuning(problem: str, seed: int) -> bool:
    """Return whether a problem is in the half that chooses the threshold."""
    return hashlib.sha256(f"{seed} {problem}".encode()).digest()[0] % 2 == 0


def _best_threshold(pairs: Sequence[_SolutionPair], goal: str) -> float:
    """Return the quantile of the scores with the highest F1 or kappa; the lowest of equal ones."""
    scores = [pair.scores for pair in pairs]
    if goal == "f1":
        return best_threshold(scores, [pair.first_error for pair in pairs])

    def kappa(threshold: float) -> float:
        kappa = _step_agreement(pairs, threshold).kappa
        return -2.0 if kappa is None else kappa

    return max(threshold_candidates(scores), key=kappa)


def _step_agreement(pairs: Iterable[_SolutionPair], threshold: float) -> StepAgreement:
    """Return the agreement on all steps of solutions."""
    problems: list[str] = []
    truth: list[bool] = []
    labels: list[bool] = []
    for pair in pairs:
        problems += [pair.problem] * len(pair.truth)
        truth += pair.truth
        labels += [score >= threshold for score in pair.scores]
    agreement = measure_agreement(problems, truth, labels)
    assert agreement is not None  # solutions without steps have no labels
    return agreement


def _measure(pairs: Sequence[_SolutionPair], threshold: float) -> LabelAgreement:
    """Return the agreement on solutions."""
    return LabelAgreement(_step_agreement(pairs, threshold), _first_errors(pairs, threshold))


def _before_last(pairs: Sequence[_SolutionPair], threshold: float) -> LabelAgreement | None:
    """Return the agreement on the steps before the last of each solution."""
    shorter = [
        pair._replace(truth=pair.truth[:-1], scores=pair.scores[:-1])
        for pair in pairs
        if len(pair.truth) > 1
    ]
    return LabelAgreement(_step_agreement(shorter, threshold), None) if shorter else None


def _by_position(pairs: Sequence[_SolutionPair], threshold: float) -> dict[str, LabelAgreement]:
    """Return the agreement on the steps of each position."""
    by_position: dict[int, list[_SolutionPair]] = defaultdict(list)
    for pair in pairs:
        for index, (label, score) in enumerate(zip(pair.truth, pair.scores, strict=True), 1):
            step = pair._replace(truth=[label], scores=[score])
            by_position[min(index, MAX_POSITION)].append(step)
    return {
        f"{position}+" if position == MAX_POSITION else str(position): LabelAgreement(
            _step_agreement(steps, threshold), None
        )
        for position, steps in sorted(by_position.items())
    }


def _first_errors(pairs: Sequence[_SolutionPair], threshold: float) -> FirstErrorAgreement:
    """Return how often the labeller names the first error of the reference."""
    first_errors = [pair.first_error for pair in pairs]
    hits = find_hits([pair.scores for pair in pairs], first_errors, threshold)
    problems_with_error = [pair.problem for pair in pairs if pair.first_error != NO_ERROR]
    problems_without_error = [pair.problem for pair in pairs if pair.first_error == NO_ERROR]
    return FirstErrorAgreement(
        f1=f1_of_hits(*hits),
        with_error=mean_rate(hits[0], problems_with_error),
        without_error=mean_rate(hits[1], problems_without_error),
    )


def format_report(report: AgreementReport) -> str:
    """Return the report as text; each kappa has the base rates in front of it."""
    lines = [
        f"reference  {report.reference}, right {_format_threshold(report.reference_threshold)}",
        f"labeller   {report.labeller}, right {_format_threshold(report.threshold)} "
        f"({report.threshold_source})",
        f"compared   {report.solutions:,} solutions of {report.total.steps.problems:,} problems; "
        f"{report.only_reference:,} only in the reference, {report.only_labeller:,} only of the "
        f"labeller, {report.other_steps:,} with other steps",
        "",
        f"{'':<20}{'steps':>8}  {'right: reference, labeller':<28}{'agreement':<22}"
        f"{'kappa':<24}first errors: F1, found, passed",
    ]
    lines.append(_format_row("all", report.total))
    if report.before_last is not None:
        lines.append(_format_row("before the last", report.before_last))
    if len(report.by_source) > 1:
        lines += [_format_row(name, part) for name, part in report.by_source.items()]
    lines += [_format_row(f"step {name}", part) for name, part in report.by_position.items()]
    return "\n".join(lines)


def _format_row(name: str, part: LabelAgreement) -> str:
    """Return one line of the table."""
    steps = part.steps
    rates = f"{steps.reference_right:.1%}, {steps.labeller_right:.1%}"
    agreement = f"{steps.agreement:.1%}{_format_interval(steps.agreement_ci95, percent=True)}"
    kappa = "undefined"
    if steps.kappa is not None:
        kappa = f"{steps.kappa:.3f}{_format_interval(steps.kappa_ci95)}"
    row = f"{name[:19]:<20}{steps.steps:>8,}  {rates:<28}{agreement:<22}{kappa:<24}"
    errors = part.first_errors
    if errors is not None:
        f1 = "none" if errors.f1 is None else f"{100 * errors.f1:.1f}"
        row += f"{f1}, {_format_fraction(errors.with_error)}"
        row += f", {_format_fraction(errors.without_error)}"
    return row.rstrip()


def _format_threshold(threshold: float) -> str:
    return "with any correct continuation" if threshold == ANY_CORRECT else f"from {threshold:.3g}"


def _format_interval(interval: Interval | None, *, percent: bool = False) -> str:
    if interval is None:
        return ""
    low, high = interval
    if percent:
        return f" [{100 * low:.1f}, {100 * high:.1f}]"
    return f" [{low:.3f}, {high:.3f}]"


def _format_fraction(fraction: Mean) -> str:
    if fraction.value is None:
        return "none"
    return f"{fraction.value:.1%} of {fraction.n:,}"
