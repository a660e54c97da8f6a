"""Scores of a reward model on PRMBench, by kind of alteration of a correct solution.

PRMBench (Song et al. 2025) counts a step as right if its reward is above a threshold. Its PRMScore
is the mean of two F1 scores over steps: F1 of the right steps, and negative F1 of the wrong steps.
Solutions that are too long for the model are excluded. The numbers equal the numbers of the
``mr_eval`` code of PRMBench, with one exception: if a number is undefined (a zero denominator),
``mr_eval`` gives -1. Here, it is None, or 0 for an F1 whose precision and recall are 0.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from fsdpo_bench.prm.processbench import FirstErrorExample
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.row_errors import describe_row_error
from fsdpo_data.core.row_files import read_records
from fsdpo_data.core.toml_tables import TomlTable
from fsdpo_data.steps.first_error import NO_ERROR

ORIGINAL = "original"  #: Alteration of solutions that are not altered.
_ALL = "all"  #: Name of the scores over all altered solutions.


@dataclass(frozen=True, slots=True)
class Alteration:
    """A kind of alteration of solutions: a row of ``prmbench.toml``."""

    title: str  #: Name in tables.
    dimension: str  #: Dimension of PRMBench that contains the alteration.
    originals: bool = False  #: Whether the unaltered solutions are measured too.


#: The alterations of PRMBench, by their names in its files.
ALTERATIONS = TomlTable(__file__, lambda _, **fields: Alteration(**fields))


@dataclass(frozen=True, slots=True)
class AlteredSolution(FirstErrorExample):
    """A solution with the indices of all wrong steps; ``key`` is the id of its original."""

    alteration: str  #: Name of the alteration, or ``ORIGINAL``.
    #: Indices of the wrong steps. Some rows of PRMBench contain indices beyond the last step.
    wrong_steps: frozenset[int]


class StepPredictions(NamedTuple):
    """The predictions for the steps of a solution."""

    solution: AlteredSolution  #: The solution, with its true step labels.
    is_right: Sequence[bool]  #: Whether the reward of each step is above the threshold.

    @property
    def right_fraction(self) -> float:
        """Fraction of the steps that are predicted to be right."""
        return fmean(self.is_right)


@dataclass(frozen=True, slots=True)
class StepErrorScores:
    """Scores of the predictions for steps; pairs are (hits, total), None is undefined."""

    solutions: int  #: Number of scored solutions.
    unscored: int  #: Number of solutions too long for the model; all scores exclude them.
    passed: tuple[int, int]  #: Right steps that are predicted to be right.
    caught: tuple[int, int]  #: Wrong steps that are predicted to be wrong.
    #: Solutions whose first wrong step is predicted to be wrong, for any prediction of other steps.
    first_caught: tuple[int, int]
    #: Mean absolute difference to the original in the fraction of steps predicted to be right.
    mean_gap_to_original: float | None
    f1: float | None  #: F1 of the right steps.
    negative_f1: float | None  #: F1 of the wrong steps.
    score: float | None  #: PRMScore: the mean of both F1 scores; F1 alone without wrong steps.


@dataclass(frozen=True, slots=True)
class PrmBenchScores:
    """Scores of a reward model on PRMBench."""

    threshold: float  #: Steps with a reward above the threshold count as right.
    #: Scores by alteration; ``all``: all altered solutions; ``original``: the unaltered ones.
    alterations: Mapping[str, StepErrorScores]
    dimensions: Mapping[str, float]  #: Mean PRMScore over the alterations of each dimension.


def read_altered_solutions(files: Sequence[Path]) -> list[AlteredSolution]:
    """Read the rows of PRMBench without duplicates, and the original solutions that it measures.

    Raises:
        InputError: if a row has another format.
    """
    solutions: dict[tuple[str, str], AlteredSolution] = {}
    for file in files:
        for record in read_records(file):
            try:
                for solution in _parse_row(record.fields):
                    solutions.setdefault((solution.alteration, solution.key), solution)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise InputError(
                    f"{file}, row {record.row_number}: "
                    f"{record.error or describe_row_error(error)}. Expected "
                    "idx, classification, modified_question, modified_process, error_steps of "
                    "PRMBench."
                ) from None
    return list(solutions.values())


def _parse_row(row: Mapping[str, Any]) -> Iterator[AlteredSolution]:
    """Yield the altered solution of a row, and the original if PRMBench measures it."""
    alteration = row["classification"]
    if alteration not in ALTERATIONS:
        raise ValueError(
            f"the classification {alteration!r} is unknown; known are {', '.join(ALTERATIONS)}"
        )
    wrong_steps = frozenset(int(number) - 1 for number in row["error_steps"])
    has_measured_original = ALTERATIONS[alteration].originals
    yield _parse_solution(row, "modified", alteration, wrong_steps)
    if has_measured_original:
        yield _parse_solution(row, "original", ORIGINAL, frozenset())


def _parse_solution(
    row: Mapping[str, Any], prefix: str, alteration: str, wrong_steps: frozenset[int]
) -> AlteredSolution:
    """Return the solution in the fields with a prefix: ``modified`` or ``original``."""
    question = row[f"{prefix}_question"]
    steps = row[f"{prefix}_process"]
    if not isinstance(question, str) or not isinstance(steps, list) or not steps:
        raise ValueError("no question or no steps")
    return AlteredSolution(
        key=str(row["idx"]),
        question=question,
        steps=tuple(map(str, steps)),
        first_error=min(wrong_steps, default=NO_ERROR),
        alteration=alteration,
        wrong_steps=wrong_steps,
    )


def measure_step_errors(
    rows: Sequence[AlteredSolution],
    rewards: Sequence[Sequence[float] | None],
    threshold: float = 0.5,
) -> PrmBenchScores:
    """Return the scores by alteration, by dimension and for all altered solutions.

    Args:
        rows: The solutions; originals have scores of their own, and are not part of ``all``.
        rewards: One reward per step; None for solutions that the model cannot read.
        threshold: Steps with a reward above the threshold count as right.
    """
    names = (_ALL, *ALTERATIONS, ORIGINAL)
    predictions: dict[str, list[StepPredictions]] = {name: [] for name in names}
    unscored: Counter[str] = Counter()
    for row, step_rewards in zip(rows, rewards, strict=True):
        row_names = (ORIGINAL,) if row.alteration == ORIGINAL else (_ALL, row.alteration)
        for name in row_names:
            if step_rewards is None:
                unscored[name] += 1
            else:
                is_right = [reward > threshold for reward in step_rewards]
                predictions[name].append(StepPredictions(row, is_right))
    # As in the code of PRMBench, an original without a step predicted to be right does not count.
    original_fractions = {
        original.solution.key: original.right_fraction
        for original in predictions[ORIGINAL]
        if original.right_fraction
    }
    scores_by_name = {
        name: _score_predictions(predictions[name], unscored[name], original_fractions)
        for name in names
    }
    dimension_scores: dict[str, list[float]] = {}
    for name, alteration in ALTERATIONS.items():
        score = scores_by_name[name].score
        if score is not None:
            dimension_scores.setdefault(alteration.dimension, []).append(score)
    return PrmBenchScores(
        threshold=threshold,
        alterations=scores_by_name,
        dimensions={name: fmean(scores) for name, scores in dimension_scores.items()},
    )


def _score_predictions(
    predictions: Sequence[StepPredictions],
    unscored: int,
    original_fractions: Mapping[str, float],
) -> StepErrorScores:
    """Return the scores of some solutions.

    Args:
        predictions: The predictions for each solution.
        unscored: Number of solutions without predictions.
        original_fractions: Fraction of the steps of each original solution that the model
            predicts to be right, by key.
    """
    true_positives, false_negatives = _count_predictions(predictions, is_wrong=False)
    false_positives, true_negatives = _count_predictions(predictions, is_wrong=True)
    first_errors_caught = [
        not is_right[solution.first_error]
        for solution, is_right in predictions
        if 0 <= solution.first_error < len(is_right)
    ]
    gaps = [
        abs(item.right_fraction - original_fractions[item.solution.key])
        for item in predictions
        if item.solution.alteration != ORIGINAL and item.solution.key in original_fractions
    ]
    errors = false_positives + false_negatives
    f1 = _f1_score(true_positives, errors)
    negative_f1 = _f1_score(true_negatives, errors)
    has_wrong_steps = true_negatives + false_positives > 0
    score = f1
    if f1 is not None and negative_f1 is not None and has_wrong_steps:
        score = (f1 + negative_f1) / 2
    return StepErrorScores(
        solutions=len(predictions),
        unscored=unscored,
        passed=(true_positives, true_positives + false_negatives),
        caught=(true_negatives, true_negatives + false_positives),
        first_caught=(sum(first_errors_caught), len(first_errors_caught)),
        mean_gap_to_original=fmean(gaps) if gaps else None,
        f1=f1,
        negative_f1=negative_f1,
        score=score,
    )


def _count_predictions(
    predictions: Sequence[StepPredictions], *, is_wrong: bool
) -> tuple[int, int]:
    """Count the steps predicted to be right, and to be wrong.

    Args:
        predictions: The predictions for each solution.
        is_wrong: Whether to count the steps that are wrong, or the steps that are right.
    """
    n_right = 0
    n_wrong = 0
    for solution, is_right in predictions:
        for index, is_predicted_right in enumerate(is_right):
            if (index in solution.wrong_steps) != is_wrong:
                continue
            if is_predicted_right:
                n_right += 1
            else:
                n_wrong += 1
    return n_right, n_wrong


def _f1_score(hits: int, errors: int) -> float | None:
    """Return F1 from the true positives and the sum of both kinds of errors; None if undefined."""
    return 2 * hits / (2 * hits + errors) if hits + errors else None
