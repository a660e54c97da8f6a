"""Responses that others recorded, in the forms they published them in."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fsdpo_data.answers import Verdict
from fsdpo_data.answers.finding.extract import is_marked
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.answers.pool import grade_all
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.rows import read_records
from fsdpo_data.core.statistics import wilson_interval
from fsdpo_data.problems.forms import NotAProblem
from fsdpo_data.problems.outputs import FORMS, OutputForm, Recorded, form_of


def read_outputs(file: Path) -> list[Recorded]:
    """Read recorded responses, whoever published them.

    lm-evaluation-harness writes every document once for each of its filters, with the same
    responses; they are read once, with the score of the first filter.

    Raises:
        InputError: if a row cannot be read, or is of no known form that has golds.
    """
    found: list[Recorded] = []
    seen: set[str] = set()
    for record in read_records(file):
        where, form = f"{file}, row {record.row}", _form_of(record.fields)
        if record.broken or form is None:
            known = "; ".join(
                f"{form.says} ({', '.join(form.needs)})" for form in FORMS.values() if form.gold
            )
            why = record.broken or f"fields {', '.join(sorted(record.fields))}"
            raise InputError(f"{where}: {why}. Expected one of: {known}.")
        key = form.key(record.fields)
        if not key or key not in seen:
            try:
                found += form.read(record)
            except NotAProblem as reason:
                raise InputError(f"{where}: {reason}.") from None
        seen.add(key)
    if not found:
        raise InputError(f"{file}: no response in it.")
    return found


def is_outputs(file: Path) -> bool:
    """Whether a file's first row has one of the forms that have golds.

    Raises:
        InputError: if there is no such file.
    """
    first = next(iter(read_records(file)), None)
    return first is not None and _form_of(first.fields) is not None


def _form_of(fields: Mapping[str, Any]) -> OutputForm | None:
    form = form_of(fields)
    return form if form is not None and form.gold else None


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
    """The score of one model or sample index."""

    name: str  #: As the file has it; empty where there is one series.
    outcomes: Counter[str]
    marked: int  #: Correct responses that mark their answer: the score without the lenient rules.
    exact: int  #: Correct responses without any tolerance.
    #: Responses its publisher calls correct; None where the file has no verdicts.
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
    pairs = [(each.gold, each.response, each.finish_reason) for each in recorded]
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
