"""The scores by two graders, their paired difference, and the order of models."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from fsdpo_bench.audit.responses import AuditedResponse
from fsdpo_bench.intervals import Interval, Proportion, paired_interval, proportion
from fsdpo_data.core.entities import UNDECIDED


@dataclass(frozen=True, slots=True)
class GraderDifference:
    """Our score minus the score by the other grader, on the same responses."""

    value: float  #: The difference of two fractions.
    ci95: Interval  #: 95 % interval, over problems if they have several responses.


@dataclass(frozen=True, slots=True)
class GroupScores:
    """The scores of one file, model or benchmark by both graders."""

    group: str  #: Name of the file, model or benchmark.
    other: Proportion  #: Correct responses by the other grader.
    ours: Proportion  #: Correct responses by our grader; undecided ones count as wrong.
    upper_bound: Proportion  #: The same; undecided responses count as correct.
    difference: GraderDifference  #: ``ours`` minus ``other``.
    upper_difference: GraderDifference  #: ``upper_bound`` minus ``other``.
    undecided: int  #: Number of undecided responses.
    disputed: int  #: Number of responses on which the graders disagree.
    not_counted: int  #: Responses whose gold a grader could not read.


class ModelOrder(NamedTuple):
    """The order of two models by three scores: 1 if the first is better, -1 if worse, else 0."""

    first: str  #: The first model.
    second: str  #: The second model.
    other: int  #: Order by the other grader.
    ours: int  #: Order by our grader; undecided responses count as wrong.
    upper_bound: int  #: The same; undecided responses count as correct.

    @property
    def has_changed(self) -> bool:
        """Whether the graders order the models differently."""
        return self.other != self.ours


def score_groups(responses: Sequence[AuditedResponse]) -> list[GroupScores]:
    """Return the scores of each group, in the order of the responses."""
    groups: dict[str, list[AuditedResponse]] = defaultdict(list)
    for response in responses:
        groups[response.group].append(response)
    return [
        _score_group(name, items)
        for name, items in groups.items()
        if any(item.is_counted for item in items)
    ]


def _score_group(name: str, responses: Sequence[AuditedResponse]) -> GroupScores:
    """Return the scores of one group with at least one counted response."""
    valid_responses = [response for response in responses if response.is_counted]
    problems = [response.problem for response in valid_responses]
    clusters = None if len(set(problems)) == len(problems) else problems
    other = [int(response.other_outcome == "correct") for response in valid_responses]
    ours = [int(response.outcome == "correct") for response in valid_responses]
    upper = [int(response.outcome in ("correct", UNDECIDED)) for response in valid_responses]
    return GroupScores(
        group=name,
        other=proportion(other, clusters),
        ours=proportion(ours, clusters),
        upper_bound=proportion(upper, clusters),
        difference=_difference(other, ours, clusters),
        upper_difference=_difference(other, upper, clusters),
        undecided=sum(response.outcome == UNDECIDED for response in valid_responses),
        disputed=sum(response.is_disputed for response in valid_responses),
        not_counted=len(responses) - len(valid_responses),
    )


def _difference(
    other: Sequence[int], ours: Sequence[int], clusters: Sequence[str] | None
) -> GraderDifference:
    """Return the mean of ``ours`` minus the mean of ``other``, with a paired interval."""
    gains = [value - other_value for value, other_value in zip(ours, other, strict=True)]
    return GraderDifference(sum(gains) / len(gains), paired_interval(gains, clusters))


def order_models(
    responses: Sequence[AuditedResponse], scores: Sequence[GroupScores]
) -> list[ModelOrder]:
    """Return the order of each pair of groups with the same problems.

    Args:
        responses: The responses of all groups.
        scores: The scores of the groups.
    """
    problems: dict[str, set[str]] = defaultdict(set)
    for response in responses:
        problems[response.group].add(response.problem)
    return [
        ModelOrder(
            first=a.group,
            second=b.group,
            other=_order(a.other, b.other),
            ours=_order(a.ours, b.ours),
            upper_bound=_order(a.upper_bound, b.upper_bound),
        )
        for a, b in combinations(scores, 2)
        if problems[a.group] == problems[b.group]
    ]


def _order(a: Proportion, b: Proportion) -> int:
    """Compare two means of at least one value."""
    assert a.value is not None and b.value is not None
    return (a.value > b.value) - (a.value < b.value)
