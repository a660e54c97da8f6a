"""Read and grade responses that other tools recorded, in the formats of their publishers."""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fsdpo_data.answers import Verdict
from fsdpo_data.answers.extraction.extract import is_marked_rule
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.entities import COUNTED_OUTCOMES, UNDECIDED_OUTCOMES, Outcome, Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.statistics import Interval, mean_rate
from fsdpo_data.exchange.formats import find_response_format
from fsdpo_data.exchange.reading import read_usable_rows
from fsdpo_data.exchange.response_formats import (
    DEFAULT_RESPONSE_READING,
    RecordedResponse,
    ResponseReading,
)
from fsdpo_data.grading.pool import open_grader
from fsdpo_data.stages.verdicts import grading_request, mark_truncated_thinking


def read_outputs(
    file: Path, reading: ResponseReading = DEFAULT_RESPONSE_READING
) -> list[RecordedResponse]:
    """Read recorded responses in any known format with golds, as an import does.

    Args:
        file: The file.
        reading: How to read its rows, and which responses.

    Raises:
        InputError: if a row cannot be read, or has no known format with golds, or if no response
            is of the model that ``reading`` selects.
    """
    format_of_row = partial(find_response_format, reading=reading, requires_gold=True)
    rows = read_usable_rows(file, format_of_row)
    responses = [response for row in rows for response in row.responses]
    if not responses:
        raise InputError(f"{file}: no responses found. Expected at least one row.")
    selected = list(filter(reading.selects, responses))
    if not selected:
        models = {response.model for response in responses}
        raise reading.unknown_series_error(str(file), models)
    return selected


@dataclass(frozen=True, slots=True)
class GradedResponse:
    """A recorded response with our verdicts."""

    recorded_response: RecordedResponse  #: The response, with the publisher's verdict.
    verdict: Verdict  #: Our verdict, with the tolerance.

    @property
    def is_correct(self) -> bool:
        """Whether our verdict is ``correct``."""
        return self.verdict.status == "correct"

    @property
    def is_exactly_correct(self) -> bool:
        """Whether our verdict without any tolerance is ``correct``."""
        exactly_correct = self.verdict.exactly_correct
        return self.is_correct if exactly_correct is None else exactly_correct

    def to_row(self) -> dict[str, Any]:
        """Return the response with its verdict, as a row of a file."""
        recorded = self.recorded_response
        return {
            "row": recorded.row,
            "series": self.series,
            "question": recorded.question,
            "gold": recorded.gold,
            "response": recorded.completion.text,
            "answer": self.verdict.answer,
            "status": self.verdict.status,
            "rule": self.verdict.rule,
            "recorded": recorded.completion.imported_correct,
        }

    @property
    def series(self) -> str:
        """The model and the sample; the responses with the same ones are evaluated together."""
        recorded = self.recorded_response
        return ", ".join(dict.fromkeys(filter(None, (recorded.model, recorded.series))))

    @property
    def is_counted(self) -> bool:
        """Whether accuracy counts the response: its gold answer is readable."""
        return self.verdict.status in COUNTED_OUTCOMES

    @property
    def differs_from_recorded(self) -> bool:
        """Whether the recorded verdict is another one; False without one, or if not counted."""
        recorded = self.recorded_response.completion.imported_correct
        return self.is_counted and recorded is not None and recorded != self.is_correct


def grade_outputs(
    recorded: Sequence[RecordedResponse],
    grader: str | None = None,
    workers: int | None = None,
    *,
    grade_thinking: bool = False,
) -> list[GradedResponse]:
    """Grade recorded responses, in order.

    Args:
        recorded: The responses.
        grader: Full name of the grader; None for the strict grader of this release.
        workers: Number of grading processes; None for all CPU cores.
        grade_thinking: Whether a response without text after its thinking may have its answer in
            the thinking.
    """
    requests = [
        grading_request(
            Problem(response.question, response.gold, source="", split=""),
            response.completion.text,
            prompt=response.prompt,
            finish_reason=response.completion.finish_reason,
            has_separate_reasoning=bool(response.completion.reasoning),
            grade_thinking=grade_thinking,
        )
        for response in recorded
    ]
    for indices in _indices_by_model(recorded):
        marked = mark_truncated_thinking([requests[index] for index in indices])
        for index, request in zip(indices, marked, strict=True):
            requests[index] = request
    with open_grader(partial(get_grader, grader), len(requests), workers) as opened_grader:
        return list(map(GradedResponse, recorded, opened_grader.grade(requests)))


def _indices_by_model(recorded: Sequence[RecordedResponse]) -> list[list[int]]:
    """Return the indices of the responses of each model."""
    by_model: dict[str, list[int]] = defaultdict(list)
    for index, response in enumerate(recorded):
        by_model[response.model].append(index)
    return list(by_model.values())


def summarize_by_series(scored: Sequence[GradedResponse]) -> list[dict[str, Any]]:
    """Return the scores of each series (model or sample of the file) as plain JSON.

    The fields of a series are:

    - ``correct``: responses with the verdict ``correct``
    - ``marked_correct``: correct responses whose answer is marked, e.g. boxed
    - ``exact_correct``: correct responses without any tolerance
    - ``n``: all responses, except those with an unreadable gold. Undecided ones and timeouts count
      as wrong
    - ``ci95``: 95 % interval of ``correct / n``, with problems as the independent units
    - ``upper_bound``: the correct and the undecided responses, and the timeouts
    - ``upper_bound_ci95``: 95 % interval of ``upper_bound / n``
    - ``outcomes``: responses by outcome
    - ``recorded_correct``: of the ``n`` responses, those whose recorded verdict is correct; None if
      one of them has no such verdict
    - ``disputed``: of the ``n`` responses, those whose recorded verdict differs
    """
    groups: dict[str, list[GradedResponse]] = defaultdict(list)
    for response in scored:
        groups[response.series].append(response)
    return [{"series": name, **_summarize(groups[name])} for name in sorted(groups)]


def _summarize(responses: Sequence[GradedResponse]) -> dict[str, Any]:
    """Return the scores of one series; see :func:`summarize_by_series`."""
    outcomes: Counter[Outcome] = Counter(response.verdict.status for response in responses)
    n_correct = outcomes["correct"]
    counted_responses = [response for response in responses if response.is_counted]
    recorded_verdicts = [
        response.recorded_response.completion.imported_correct for response in counted_responses
    ]
    marked_correct = [
        response
        for response in responses
        if response.is_correct and is_marked_rule(response.verdict.rule)
    ]
    has_all_recorded = None not in recorded_verdicts
    return {
        "correct": n_correct,
        "marked_correct": len(marked_correct),
        "exact_correct": sum(response.is_exactly_correct for response in responses),
        "n": len(counted_responses),
        "ci95": _interval(counted_responses, ["correct"]),
        "upper_bound": n_correct + sum(outcomes[outcome] for outcome in UNDECIDED_OUTCOMES),
        "upper_bound_ci95": _interval(counted_responses, ["correct", *UNDECIDED_OUTCOMES]),
        "outcomes": dict(sorted(outcomes.items())),
        "recorded_correct": sum(map(bool, recorded_verdicts)) if has_all_recorded else None,
        "disputed": sum(response.differs_from_recorded for response in responses),
    }


def _interval(responses: Sequence[GradedResponse], outcomes: Collection[str]) -> Interval | None:
    """Return a 95 % interval of the fraction of responses with some outcomes.

    Responses to one question are one cluster. Without questions, every row is a cluster.
    """
    clusters: list[str | int] = []
    has_outcome: list[bool] = []
    for response in responses:
        recorded = response.recorded_response
        clusters.append(recorded.question or recorded.row)
        has_outcome.append(response.verdict.status in outcomes)
    return mean_rate(has_outcome, clusters).ci95
