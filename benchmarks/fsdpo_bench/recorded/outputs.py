"""Responses that others recorded, in the forms they published them in."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fsdpo_data.answers import Verdict
from fsdpo_data.answers.extraction.extract import is_marked_rule
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.row_files import read_records
from fsdpo_data.core.statistics import wilson_interval
from fsdpo_data.models.thinking import find_thinking
from fsdpo_data.problems.recorded_responses import (
    RecordedResponse,
    find_response_format,
    unknown_format_message,
)
from fsdpo_data.problems.row_formats import UnusableRowError
from fsdpo_data.stages.grade import GradingInput, grade_in_pool


def read_outputs(file: Path) -> list[RecordedResponse]:
    """Read recorded responses, whoever published them.

    lm-evaluation-harness writes every document once for each of its filters, with the same
    responses; they are read once, with the score of the first filter.

    Raises:
        InputError: if a row cannot be read, or is of no known form that has golds.
    """
    found: list[RecordedResponse] = []
    seen: set[str] = set()
    for record in read_records(file):
        where, form = (
            f"{file}, row {record.row_number}",
            find_response_format(record.fields, requires_gold=True),
        )
        if record.error or form is None:
            raise InputError(
                f"{where}: {record.error or unknown_format_message(record.fields, requires_gold=True)}."
            )
        key = form.document_key(record.fields)
        if not key or key not in seen:
            try:
                found += form.read_responses(record)
            except UnusableRowError as reason:
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
    return first is not None and find_response_format(first.fields, requires_gold=True) is not None


@dataclass(frozen=True, slots=True)
class GradedResponse:
    """A recorded response with our verdict, and with the one without any tolerance."""

    recorded: RecordedResponse
    verdict: Verdict
    exact: Verdict

    @property
    def correct(self) -> bool:
        """Whether we call it correct."""
        return self.verdict.status == "correct"

    @property
    def disagrees_with_publisher(self) -> bool:
        """Whether its publisher says otherwise."""
        return self.recorded.correct is not None and self.recorded.correct != self.correct


def score(
    recorded: Sequence[RecordedResponse], tolerance: float | None = None, workers: int | None = None
) -> list[GradedResponse]:
    """Grade recorded responses, in order; ``timed_out`` counts as wrong."""
    pairs = [
        GradingInput(
            gold=each.gold,
            thinking=find_thinking("", each.response),
            text=each.response,
            finish_reason=each.finish_reason,
        )
        for each in recorded
    ]
    exact = grade_in_pool(MathGrader, pairs, workers)
    counted = grade_in_pool(partial(MathGrader, tolerance), pairs, workers) if tolerance else exact
    return [GradedResponse(*each) for each in zip(recorded, counted, exact, strict=True)]


def by_series(scored: Sequence[GradedResponse]) -> list[dict[str, Any]]:
    """Count by series, as the file names them, in that order; plain values for machines.

    ``n`` are the responses that count, all but those whose gold cannot be read; ``marked_correct``
    is the score without the lenient rules, ``exact_correct`` that without any tolerance, and
    ``published_correct`` None where the file has no verdicts.
    """
    groups: dict[str, list[GradedResponse]] = defaultdict(list)
    for each in scored:
        groups[each.recorded.series].append(each)
    return [{"series": name, **_count(groups[name])} for name in sorted(groups)]


def _count(scored: Sequence[GradedResponse]) -> dict[str, Any]:
    outcomes = Counter(each.verdict.status for each in scored)
    correct, n = outcomes["correct"], outcomes.total() - outcomes["gold_unparsed"]
    flags = [each.recorded.correct for each in scored]
    return {
        "correct": correct,
        "marked_correct": sum(
            each.correct and is_marked_rule(each.verdict.rule) for each in scored
        ),
        "exact_correct": sum(each.exact.status == "correct" for each in scored),
        "n": n,
        "ci95": wilson_interval(correct, n),
        "outcomes": dict(sorted(outcomes.items())),
        "published_correct": None if None in flags else sum(map(bool, flags)),
        "disputed": sum(each.disagrees_with_publisher for each in scored),
    }
