"""Finding the first wrong step: ProcessBench and files of its form.

ProcessBench (Zheng et al. 2024) asks where a solution goes wrong first. A reward model answers
with the first step whose reward is below a threshold, or that there is none. The score is the
harmonic mean of the accuracies on solutions with and without an error. The threshold is chosen on
a part of the rows that the score is not taken on.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fsdpo_cards.render import format_percent

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.row_files import read_records
from fsdpo_data.core.statistics import wilson_interval
from fsdpo_data.engines.scorers import Scorer, ScorerInput
from fsdpo_data.models.prompts import Template

NO_ERROR = -1  #: What says that no step is wrong.
_CANDIDATES = 200  #: Thresholds tried: as many quantiles of the rewards.


@dataclass(frozen=True, slots=True)
class FirstErrorExample:
    """A solution whose first wrong step is known."""

    key: str
    problem: str
    steps: tuple[str, ...]
    first_error: int


@dataclass(frozen=True, slots=True)
class FirstErrorScores:
    """How often the first wrong step was found."""

    f1: float
    found: int  #: Solutions with an error whose first wrong step was named.
    with_error: int
    passed: int  #: Solutions without an error that were called right.
    without_error: int
    threshold: float  #: Rewards below it call a step wrong.
    tuned_on: int = 0  #: Rows the threshold was chosen on, which are not counted here.
    unscored: int = 0  #: Rows too long for the model; they count as missed.

    def rows(self) -> list[tuple[str, str]]:
        """Return (name, value) for a person; every share with its interval and denominator."""
        return [
            ("F1 of finding the first error", f"{100 * self.f1:.1f}"),
            ("error found", _share(self.found, self.with_error)),
            ("correct passed", _share(self.passed, self.without_error)),
            ("threshold", f"{self.threshold:.3f}, chosen on {self.tuned_on} other rows"),
            ("too long", f"{self.unscored}"),
        ]


def _share(part: int, whole: int) -> str:
    found = whole and format_percent(part / whole, wilson_interval(part, whole))
    return f"{found}  ({part} of {whole})" if found else "none"


def read_first_error_rows(file: Path) -> list[FirstErrorExample]:
    """Read rows of ``problem``, ``steps`` and ``label`` (index of the first wrong step, or -1).

    Raises:
        InputError: if a row lacks one of them or its label is no step.
    """
    rows = []
    for record in read_records(file):
        fields = record.fields
        problem, steps, label = (fields.get(name) for name in ("problem", "steps", "label"))
        if not isinstance(problem, str) or not isinstance(steps, list) or not steps:
            raise InputError(
                f"{file}, row {record.row_number}: {record.error or 'no problem or no steps'}. Expected "
                "problem, steps (a list) and label, as in ProcessBench."
            )
        if not isinstance(label, int) or not NO_ERROR <= label < len(steps):
            raise InputError(
                f"{file}, row {record.row_number}: label {label!r} of {len(steps)} steps. Expected the "
                "index of the first wrong step, or -1."
            )
        key = str(fields.get("id", record.row_number))
        rows.append(FirstErrorExample(key, problem, tuple(map(str, steps)), label))
    return rows


def score_examples(
    rows: Sequence[FirstErrorExample], scorer: Scorer, template: Template | None
) -> list[list[float] | None]:
    """Reward every step; steps are joined by a blank line, as they were written.

    ``template`` is None for a scorer that asks in words of its own.
    """
    items = []
    for row in rows:
        *before, last = row.steps
        steps = [step.rstrip("\n") + "\n\n" for step in before]
        prompt = template.render(row.problem) if template else row.problem
        items.append(ScorerInput(prompt, [*steps, last], row.problem))
    return scorer.score(items)


def measure_first_errors(
    rows: Sequence[FirstErrorExample], rewards: Sequence[Sequence[float] | None], tune: float = 0.2
) -> FirstErrorScores:
    """Choose the threshold on a share ``tune`` of the rows, drawn by their keys; count the others.

    Raises:
        InputError: if either part would lack solutions with or without an error.
    """
    pairs = list(zip(rows, rewards, strict=True))
    pairs.sort(key=lambda pair: hashlib.sha256(pair[0].key.encode()).hexdigest())
    cut = round(tune * len(rows))
    parts = pairs[:cut], pairs[cut:]
    for part in parts:
        if len({row.first_error == NO_ERROR for row, _ in part}) < 2:
            raise InputError(
                f"{len(rows)} rows: both the {cut} that choose the threshold and the others need "
                "solutions with and without an error. Give more rows."
            )
    tuning, counted = (
        ([given for _, given in part], [row.first_error for row, _ in part]) for part in parts
    )
    counts = count_first_errors(*counted, best_threshold(*tuning))
    return replace(counts, tuned_on=cut, unscored=counted[0].count(None))


def first_below(rewards: Sequence[float], threshold: float) -> int:
    """Return the first step whose reward is below the threshold, or ``NO_ERROR``."""
    return next((i for i, reward in enumerate(rewards) if reward < threshold), NO_ERROR)


def count_first_errors(
    rewards: Sequence[Sequence[float] | None], labels: Sequence[int], threshold: float
) -> FirstErrorScores:
    """Count right answers at a threshold."""
    with_error: list[bool] = []
    without: list[bool] = []
    for each, label in zip(rewards, labels, strict=True):
        right = each is not None and first_below(each, threshold) == label
        (without if label == NO_ERROR else with_error).append(right)
    found, passed = (sum(part) / max(1, len(part)) for part in (with_error, without))
    return FirstErrorScores(
        f1=2 * found * passed / (found + passed) if found + passed else 0.0,
        found=sum(with_error),
        with_error=len(with_error),
        passed=sum(without),
        without_error=len(without),
        threshold=threshold,
    )


def best_threshold(rewards: Sequence[Sequence[float] | None], labels: Sequence[int]) -> float:
    """Return the quantile of the rewards that gives the highest F1, the lowest of equals."""
    every = sorted(reward for each in rewards if each for reward in each)
    if not every:
        return 0.5
    steps = min(_CANDIDATES, len(every))
    candidates = sorted({every[len(every) * i // steps] for i in range(steps)})
    return max(candidates, key=lambda each: count_first_errors(rewards, labels, each).f1)
