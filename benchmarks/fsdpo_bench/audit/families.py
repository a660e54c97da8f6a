"""Families of disagreements: the step at which two graders part, and the kind of the answer."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from fsdpo_bench.audit.responses import AuditedResponse
from fsdpo_data.answers.comparison.equivalence import compare_answers, comparison_rule
from fsdpo_data.answers.parsing.read import read


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A response on which two graders disagree, with the values of its family."""

    response: AuditedResponse  #: The response with both verdicts.
    verdicts: str  #: Both outcomes, e.g. ``incorrect → correct``; the other grader's is first.
    step: str  #: A key of ``STEPS``.
    kind: str  #: Comparison rule for the gold, e.g. ``number``.

    def value(self, name: str) -> str:
        """Return the value of a field in ``FAMILY_FIELDS``."""
        values = {
            "verdicts": self.verdicts,
            "step": self.step,
            "kind": self.kind,
            "rule": self.response.rule,
            "group": self.response.group,
        }
        return values[name]


@dataclass(frozen=True, slots=True)
class Family:
    """Disagreements that share the values of some fields."""

    values: Mapping[str, str]  #: The shared values, by field.
    disagreements: Sequence[Disagreement]  #: The disagreements, in the order of the files.

    @property
    def problems(self) -> int:
        """Number of problems with such a disagreement."""
        return len({item.response.problem for item in self.disagreements})

    def examples(self, count: int) -> list[Disagreement]:
        """Return up to ``count`` disagreements, from different problems first."""
        seen: set[str] = set()
        first: list[Disagreement] = []
        repeated: list[Disagreement] = []
        for item in self.disagreements:
            problem = item.response.problem
            (repeated if problem in seen else first).append(item)
            seen.add(problem)
        return [*first, *repeated][:count]


def find_disagreements(responses: Iterable[AuditedResponse]) -> list[Disagreement]:
    """Return the responses on which the graders disagree, with the values of their families."""
    return [
        Disagreement(
            response=response,
            verdicts=f"{response.other_outcome} → {response.outcome}",
            step=_step(response),
            kind=_gold_kind(response.gold),
        )
        for response in responses
        if response.is_disputed
    ]


def group_families(disagreements: Iterable[Disagreement], names: Sequence[str]) -> list[Family]:
    """Group disagreements by fields in ``FAMILY_FIELDS``; the largest family is first."""
    groups: dict[tuple[str, ...], list[Disagreement]] = defaultdict(list)
    for item in disagreements:
        groups[tuple(item.value(name) for name in names)].append(item)
    families = [
        Family(dict(zip(names, values, strict=True)), items) for values, items in groups.items()
    ]
    return sorted(families, key=lambda family: -len(family.disagreements))


def _step(response: AuditedResponse) -> str:
    """Return the step at which the graders part, a key of ``STEPS``."""
    if response.gold != response.other_gold and not _is_equal(response.gold, response.other_gold):
        return "gold"
    if response.other_answer is None:
        return "unknown"
    answer = _without_space(response.answer or "")
    other_answer = _without_space(response.other_answer)
    if answer == other_answer:
        return "comparison"
    if not other_answer:
        return "extraction: other none"
    if not answer:
        return "extraction: ours none"
    if _is_equal(response.answer or "", response.other_answer):
        return "comparison"
    if other_answer in answer:
        return "extraction: other shorter"
    return "extraction: other longer" if answer in other_answer else "extraction: different"


def _without_space(text: str) -> str:
    return "".join(text.split())


@cache
def _is_equal(gold: str, answer: str) -> bool:
    """Whether our grader accepts an answer; many responses to a problem share both texts."""
    return compare_answers(gold, answer).status == "correct"


@cache
def _gold_kind(gold: str) -> str:
    """Return the name of the comparison rule for a gold."""
    return comparison_rule(read(gold))
