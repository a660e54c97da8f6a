"""Score responses that were made elsewhere, and hold the verdicts against their publisher's."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fsdpo_bench.recorded.outputs import Recorded
from fsdpo_data.answers import Verdict
from fsdpo_data.answers.finding.extract import is_marked
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.answers.pool import grade_all
from fsdpo_data.core.statistics import wilson_interval


@dataclass(frozen=True, slots=True)
class Scored:
    """A recorded response with our verdict, and with the one without any tolerance."""

    recorded: Recorded
    verdict: Verdict
    exact: Verdict

    @property
    def correct(self) -> bool:
        """Whether we call it correct."""
        return self.verdict.status == "correct"

    @property
    def disputed(self) -> bool:
        """Whether its publisher says otherwise."""
        return self.recorded.correct is not None and self.recorded.correct != self.correct


@dataclass(frozen=True, slots=True)
class Series:
    """The score of one model or sample index.

    Attributes:
        name: As the file has it; empty where there is one series.
        outcomes: Responses by status.
        marked: Correct responses that mark their answer: the score without the lenient rules.
        exact: Correct responses without any tolerance.
        theirs: Responses its publisher calls correct; None where the file has no verdicts.
        disputed: Responses the two verdicts differ on.
    """

    name: str
    outcomes: Counter[str]
    marked: int
    exact: int
    theirs: int | None
    disputed: int

    @property
    def graded(self) -> int:
        """Responses that count: all but those whose gold cannot be read."""
        return self.outcomes.total() - self.outcomes["gold_unparsed"]

    def as_dict(self) -> dict[str, Any]:
        """Return it for machines."""
        return {
            "series": self.name,
            "correct": self.outcomes["correct"],
            "marked_correct": self.marked,
            "exact_correct": self.exact,
            "n": self.graded,
            "ci95": wilson_interval(self.outcomes["correct"], self.graded),
            "outcomes": dict(sorted(self.outcomes.items())),
            "published_correct": self.theirs,
            "disputed": self.disputed,
        }


def score(
    recorded: Sequence[Recorded], tolerance: float | None = None, workers: int | None = None
) -> list[Scored]:
    """Grade recorded responses, in order; ``timed_out`` counts as wrong."""
    pairs = [(each.gold, each.response) for each in recorded]
    exact = grade_all(MathGrader, pairs, workers)
    counted = grade_all(partial(MathGrader, tolerance), pairs, workers) if tolerance else exact
    return [Scored(*each) for each in zip(recorded, counted, exact, strict=True)]


def by_series(scored: Sequence[Scored]) -> list[Series]:
    """Count by series, in the order of their names."""
    groups: dict[str, list[Scored]] = defaultdict(list)
    for each in scored:
        groups[each.recorded.series].append(each)
    return [_count(name, groups[name]) for name in sorted(groups)]


def _count(name: str, scored: Sequence[Scored]) -> Series:
    flags = [each.recorded.correct for each in scored]
    return Series(
        name,
        Counter(each.verdict.status for each in scored),
        sum(each.correct and is_marked(each.verdict.rule) for each in scored),
        sum(each.exact.status == "correct" for each in scored),
        None if None in flags else sum(map(bool, flags)),
        sum(each.disputed for each in scored),
    )
