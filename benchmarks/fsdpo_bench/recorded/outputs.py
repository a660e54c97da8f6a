"""Responses that others recorded, in the forms they published them in."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fsdpo_data.answers import Verdict
from fsdpo_data.answers.finding.extract import is_marked
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.rows import read_records
from fsdpo_data.core.statistics import wilson_interval
from fsdpo_data.models.thinking import find_thought
from fsdpo_data.problems.forms import NotAProblem
from fsdpo_data.problems.outputs import Recorded, form_of, no_form
from fsdpo_data.stages.grade import judge_all


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
        where, form = f"{file}, row {record.row}", form_of(record.fields, golds=True)
        if record.broken or form is None:
            raise InputError(f"{where}: {record.broken or no_form(record.fields, golds=True)}.")
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
    return first is not None and form_of(first.fields, golds=True) is not None


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


def score(
    recorded: Sequence[Recorded], tolerance: float | None = None, workers: int | None = None
) -> list[Scored]:
    """Grade recorded responses, in order; ``timed_out`` counts as wrong."""
    pairs = [
        (each.gold, find_thought("", each.response), each.response, each.finish_reason)
        for each in recorded
    ]
    exact = judge_all(MathGrader, pairs, workers)
    counted = judge_all(partial(MathGrader, tolerance), pairs, workers) if tolerance else exact
    return [Scored(*each) for each in zip(recorded, counted, exact, strict=True)]


def by_series(scored: Sequence[Scored]) -> list[dict[str, Any]]:
    """Count by series, as the file names them, in that order; plain values for machines.

    ``n`` are the responses that count, all but those whose gold cannot be read; ``marked_correct``
    is the score without the lenient rules, ``exact_correct`` that without any tolerance, and
    ``published_correct`` None where the file has no verdicts.
    """
    groups: dict[str, list[Scored]] = defaultdict(list)
    for each in scored:
        groups[each.recorded.series].append(each)
    return [{"series": name, **_count(groups[name])} for name in sorted(groups)]


def _count(scored: Sequence[Scored]) -> dict[str, Any]:
    outcomes = Counter(each.verdict.status for each in scored)
    correct, n = outcomes["correct"], outcomes.total() - outcomes["gold_unparsed"]
    flags = [each.recorded.correct for each in scored]
    return {
        "correct": correct,
        "marked_correct": sum(each.correct and is_marked(each.verdict.rule) for each in scored),
        "exact_correct": sum(each.exact.status == "correct" for each in scored),
        "n": n,
        "ci95": wilson_interval(correct, n),
        "outcomes": dict(sorted(outcomes.items())),
        "published_correct": None if None in flags else sum(map(bool, flags)),
        "disputed": sum(each.disputed for each in scored),
    }
