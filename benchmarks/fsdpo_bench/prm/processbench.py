"""Detection of the first wrong step: ProcessBench, and files in its format.

In ProcessBench (Zheng et al. 2024), a reward model predicts the first step whose reward is below a
threshold, or no error. The score F1 is the harmonic mean of two accuracies: on solutions with an
error, and on solutions without an error.

The threshold is a fixed number, or it is chosen on a part of the rows or on another file. This
choice changes the score, so every score names its protocol.

Array suffixes: ``R`` solutions, ``T`` thresholds, ``D`` draws of the bootstrap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from fsdpo_cards.render import format_percent

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import np
from fsdpo_data.core.statistics import Interval, bootstrap_interval, mean_rate
from fsdpo_data.engines.item_errors import collect_results
from fsdpo_data.engines.scorers import Scorer, ScorerInput
from fsdpo_data.exchange.formats import get_step_label_format
from fsdpo_data.exchange.reading import read_usable_rows
from fsdpo_data.models.prompts import Template
from fsdpo_data.steps.first_error import (
    NO_ERROR,
    RIGHT_STEP_LABEL,
    SolutionScores,
    best_threshold,
    f1_of_hits,
    find_first_below,
    find_hits,
    threshold_candidates,
)


@dataclass(frozen=True, slots=True)
class FirstErrorExample:
    """A solution with the index of its first wrong step."""

    key: str  #: Id of the row.
    question: str  #: The question.
    steps: tuple[str, ...]  #: The steps.
    first_error: int  #: Index of the first wrong step, or ``NO_ERROR``.


class LabelledRewards(NamedTuple):
    """The step rewards and labels of some solutions."""

    #: One reward per step; None if the model cannot read the solution.
    rewards: SolutionScores
    labels: Sequence[int]  #: Indices of first wrong steps, or ``NO_ERROR``.


@dataclass(frozen=True, slots=True)
class FirstErrorScores:
    """The accuracy of the detection of first wrong steps."""

    #: Harmonic mean of the accuracies on solutions with and without an error; None if there are no
    #: such solutions.
    f1: float | None
    detected: int  #: Number of solutions with an error whose first wrong step is predicted.
    with_error: int  #: Number of solutions with an error.
    passed: int  #: Number of solutions without an error for which no error is predicted.
    without_error: int  #: Number of solutions without an error.
    threshold: float  #: Steps with a reward below the threshold count as wrong.
    protocol: str = ""  #: How the predictions were made, and which rows count.
    tuned_on: int = 0  #: Number of rows that set the threshold; 0 for a fixed threshold.
    unscored: int = 0  #: Number of rows too long for the model; they count as missed.
    f1_ci95: Interval | None = None  #: 95 % interval of ``f1``, by :func:`f1_interval`.

    def rows(self) -> list[tuple[str, str]]:
        """Return (name, value) rows for printing, with intervals and denominators."""
        return [
            ("F1 of finding the first error", format_percent(self.f1, self.f1_ci95)),
            ("error detected", _format_fraction(self.detected, self.with_error)),
            ("correct passed", _format_fraction(self.passed, self.without_error)),
            ("threshold", f"{self.threshold:.3f}"),
            ("protocol", self.protocol),
            ("too long", f"{self.unscored}"),
        ]


def _format_fraction(count: int, total: int) -> str:
    """Return a percentage with its interval and its denominator; "none" without items."""
    accuracy = mean_rate([1] * count + [0] * (total - count))
    if accuracy.value is None:
        return "none"
    return f"{format_percent(accuracy.value, accuracy.ci95)}  ({count} of {total})"


def read_first_error_rows(file: Path) -> list[FirstErrorExample]:
    """Read rows of ProcessBench, as an import does, with the steps as in the rows.

    Raises:
        InputError: if a row has another format.
    """
    published = get_step_label_format("processbench").as_published()
    expectation = (
        "Expected problem, steps (a list) and label (the index of the first wrong step, or -1), as "
        "in ProcessBench."
    )
    return [
        FirstErrorExample(
            key=str(row.record.fields.get("id", row.record.row_number)),
            question=solution.question,
            steps=tuple(solution.steps),
            first_error=find_first_below(
                solution.completion.imported_labels or (), RIGHT_STEP_LABEL
            ),
        )
        for row in read_usable_rows(file, lambda _: published, expectation)
        for solution in row.responses
    ]


def score_examples(
    examples: Sequence[FirstErrorExample], scorer: Scorer, template: Template | None
) -> list[list[float] | None]:
    """Return the step rewards of all examples.

    Args:
        examples: The examples; a blank line joins their steps, as in the original solutions.
        scorer: The reward model.
        template: Prompt template; None for a scorer with its own prompt.
    """
    items = []
    for example in examples:
        *first_steps, last_step = example.steps
        steps = [step.rstrip("\n") + "\n\n" for step in first_steps]
        prompt = template.render(example.question) if template else example.question
        items.append(
            ScorerInput(prompt=prompt, steps=[*steps, last_step], question=example.question)
        )
    return collect_results(scorer.score(items))


def measure_first_errors(
    rows: Sequence[FirstErrorExample],
    rewards: SolutionScores,
    tune_fraction: float = 0.2,
) -> FirstErrorScores:
    """Choose the threshold on a part of the examples, and measure on the others.

    Args:
        rows: The examples.
        rewards: Result of :func:`score_examples`.
        tune_fraction: Fraction of the examples that sets the threshold. Hashes of the keys select
            them, so the order of rows has no effect.

    Raises:
        InputError: if a part lacks solutions with an error, or solutions without an error.
    """
    pairs = list(zip(rows, rewards, strict=True))
    pairs.sort(key=lambda pair: hashlib.sha256(pair[0].key.encode(errors="replace")).hexdigest())
    n_tuning = round(tune_fraction * len(rows))
    parts = []
    for part in (pairs[:n_tuning], pairs[n_tuning:]):
        if not has_both_labels([example for example, _ in part]):
            raise InputError(
                f"{len(rows)} rows: the {n_tuning} rows that choose the threshold and the other "
                "rows both need solutions with and without an error. Give more rows, or a "
                "`threshold`."
            )
        parts.append(part)
    tuning, test = parts
    return measure_with_tuning(
        [example for example, _ in test],
        [step_rewards for _, step_rewards in test],
        tuning=labelled_rewards(*zip(*tuning, strict=True)),
        protocol=f"threshold chosen on {n_tuning} other rows of the file",
    )


def measure_with_tuning(
    rows: Sequence[FirstErrorExample],
    rewards: SolutionScores,
    *,
    tuning: LabelledRewards | None,
    protocol: str,
) -> FirstErrorScores:
    """Measure on all examples, with the threshold that other rows or these rows choose.

    Args:
        rows: The examples.
        rewards: Result of :func:`score_examples`.
        tuning: The rows that set the threshold; None for the examples themselves.
        protocol: The origin of the threshold, in words.
    """
    test = labelled_rewards(rows, rewards)
    tuning = tuning or test
    scores = count_first_errors(*test, best_threshold(*tuning))
    return replace(
        scores,
        protocol=protocol,
        tuned_on=len(tuning.labels),
        unscored=list(rewards).count(None),
        f1_ci95=f1_interval(test, threshold_candidates(tuning.rewards), tuning),
    )


def measure_at_threshold(
    rows: Sequence[FirstErrorExample],
    rewards: SolutionScores,
    threshold: float,
    protocol: str,
) -> FirstErrorScores:
    """Measure on all examples, with a fixed threshold.

    Args:
        rows: The examples.
        rewards: Result of :func:`score_examples`.
        threshold: Steps with a reward below the threshold count as wrong.
        protocol: The origin of the threshold, in words.
    """
    test = labelled_rewards(rows, rewards)
    return replace(
        count_first_errors(*test, threshold),
        protocol=protocol,
        unscored=list(rewards).count(None),
        f1_ci95=f1_interval(test, [threshold]),
    )


def labelled_rewards(rows: Sequence[FirstErrorExample], rewards: SolutionScores) -> LabelledRewards:
    """Return the step rewards of examples with their labels."""
    return LabelledRewards(rewards, [row.first_error for row in rows])


def has_both_labels(rows: Sequence[FirstErrorExample]) -> bool:
    """Return whether there are solutions with an error, and solutions without one."""
    return len({row.first_error == NO_ERROR for row in rows}) == 2


def count_first_errors(
    rewards: SolutionScores, labels: Sequence[int], threshold: float
) -> FirstErrorScores:
    """Count the correct predictions at a threshold."""
    with_error, without_error = find_hits(rewards, labels, threshold)
    return FirstErrorScores(
        f1=f1_of_hits(with_error, without_error),
        detected=sum(with_error),
        with_error=len(with_error),
        passed=sum(without_error),
        without_error=len(without_error),
        threshold=threshold,
    )


def f1_interval(
    test: LabelledRewards, thresholds: Sequence[float], tuning: LabelledRewards | None = None
) -> Interval | None:
    """Return the bootstrap interval of F1, in which every draw chooses its own threshold.

    Solutions with and without an error are resampled separately, so their numbers stay.

    Args:
        test: The solutions that count.
        thresholds: The candidates for the threshold, in ascending order; one fixed threshold
            without ``tuning``.
        tuning: The solutions that choose the threshold, which may be ``test`` itself.

    Returns:
        The interval; None if the solutions with an error, or those without one, are fewer than two.
    """
    sets = [test] if tuning is None or tuning is test else [test, tuning]
    strata = [
        stratum for solutions in sets for stratum in _hits_by_threshold(solutions, thresholds)
    ]

    def resampled_f1(*counts_by_stratum: np.ndarray) -> np.ndarray:
        accuracies = [
            counts_DR @ is_hit_RT.astype(float) / len(is_hit_RT)
            for counts_DR, is_hit_RT in zip(counts_by_stratum, strata, strict=True)
        ]
        f1_DT = _harmonic_means(*accuracies[:2])
        chosen_D = _harmonic_means(*accuracies[-2:]).argmax(axis=1)
        f1_D: np.ndarray = f1_DT[np.arange(len(chosen_D)), chosen_D]
        return f1_D

    return bootstrap_interval(resampled_f1, *map(len, strata))


def _harmonic_means(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the harmonic means of fractions; 0 where both are 0."""
    total = first + second
    means: np.ndarray = 2 * first * second / np.where(total > 0, total, 1)
    return means


def _hits_by_threshold(
    solutions: LabelledRewards, thresholds: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """Return whether each prediction is right at each threshold, of shape (R, T).

    It is right if no reward before the first wrong step is below the threshold, and the reward of
    this step is. Without a wrong step, no reward may be below the threshold.

    Returns:
        The hits on solutions with an error, and on solutions without one.
    """
    above_R = []
    up_to_R = []
    for rewards, label in zip(solutions.rewards, solutions.labels, strict=True):
        if rewards is None:
            above_R.append(np.inf)
            up_to_R.append(-np.inf)
        elif label == NO_ERROR:
            above_R.append(-np.inf)
            up_to_R.append(min(rewards, default=np.inf))
        else:
            above_R.append(rewards[label])
            up_to_R.append(min(rewards[:label], default=np.inf))
    threshold_T = np.array(thresholds)
    is_above_RT = threshold_T > np.array(above_R)[:, None]
    is_hit_RT = is_above_RT & (threshold_T <= np.array(up_to_R)[:, None])
    has_error_R = np.array(solutions.labels) != NO_ERROR
    return is_hit_RT[has_error_R], is_hit_RT[~has_error_R]
