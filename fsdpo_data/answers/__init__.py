"""The interface of graders: golds and responses in, verdicts out.

A grader never raises an exception on the text of a model.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from fsdpo_data.core.entities import Outcome

#: A gold answer, a response to its problem and, if known, the finish reason of the response.
GraderInput: TypeAlias = tuple[str, str] | tuple[str, str, str]


class Verdict(NamedTuple):
    """The result of grading one response, with the rule that decided.

    Attributes:
        status: The outcome. ``incorrect`` and ``no_answer`` are failures of the model.
            ``gold_unparsed`` and ``timed_out`` are failures of the grader and never become labels.
        answer: The answer as extracted from the response, or None.
        rule: The rules of extraction and comparison that decided, e.g. ``boxed/number``.
        gold_form: The parsed form of the gold answer; empty without a comparison.
        answer_form: The parsed form of the extracted answer; empty without a comparison.
    """

    status: Outcome
    answer: str | None
    rule: str
    gold_form: str = ""
    answer_form: str = ""


class Grader(Protocol):
    """A component that compares the answers of responses with gold answers."""

    #: The full name of the grader for manifests, e.g. ``math@2``.
    version: str

    def grade(self, items: Sequence[GraderInput]) -> list[Verdict]:
        """Grade responses and return their verdicts in the same order.

        In a response with the finish reason ``length``, only an answer in a box or after an
        announcement counts.
        """
        ...
