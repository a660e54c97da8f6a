"""The Grader seam: golds with responses in, verdicts out. Never raises on model text."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from fsdpo_data.core.entities import Outcome

#: A gold answer, a response to it and, where it is known, why the response ended.
GraderInput: TypeAlias = tuple[str, str] | tuple[str, str, str]


class Verdict(NamedTuple):
    """What a grader says about one response, and why.

    Attributes:
        status: ``incorrect`` and ``no_answer`` are the model's failures; ``gold_unparsed`` and
            ``timed_out`` are not, and never become a label.
        answer: The answer as extracted from the response, or None.
        rule: The extraction and comparison rule that decided, e.g. ``boxed/number``.
        gold_form: Normal form of the gold.
        answer_form: Normal form of the answer.
    """

    status: Outcome
    answer: str | None
    rule: str
    gold_form: str = ""
    answer_form: str = ""


class Grader(Protocol):
    """Judges responses against golds; says whose fault a failure is."""

    version: str

    def grade(self, items: Sequence[GraderInput]) -> list[Verdict]:
        """Grade responses, in order; one that was cut off states no more than it marks."""
        ...
