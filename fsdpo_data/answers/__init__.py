"""The interface of graders: requests with a gold and a response in, verdicts out.

A grader never raises an exception on the text of a model.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from fsdpo_data.answers.thinking import NO_THINKING, ThinkingSpan

#: The outcome of a graded response. ``gold_unparsed``: the grader cannot read the gold answer.
#: ``undecided``: the grader did not read a part of the gold or the answer, so they may be equal.
#: ``timed_out``: the comparison took too long.
VerdictStatus = Literal[
    "correct", "incorrect", "no_answer", "undecided", "gold_unparsed", "timed_out"
]


class GradingRequest(NamedTuple):
    """A response to grade, with the gold answer of its problem."""

    gold: str  #: The gold answer.
    response: str  #: The complete response, thinking included.
    #: ``stop``, or ``length`` for a response that was truncated. In a truncated response, only an
    #: answer in a box or after an announcement counts.
    finish_reason: str = "stop"
    #: Position of the thinking in the response. Only the text after it is graded.
    thinking: ThinkingSpan = NO_THINKING
    #: Whether a response without text after its thinking may have its answer in the thinking.
    grade_thinking: bool = False
    tolerance: float | None = None  #: Relative tolerance for numbers; None for the grader's own.
    alternative_golds: Sequence[str] = ()  #: Further gold answers; one that matches is enough.


class Verdict(NamedTuple):
    """The result of grading one response, with the rule that decided.

    Attributes:
        status: The outcome. ``incorrect`` and ``no_answer`` are failures of the model.
            ``undecided``, ``gold_unparsed`` and ``timed_out`` are failures of the grader and never
            become labels.
        answer: The answer as extracted from the response, or None.
        rule: The rules of extraction and comparison that decided, e.g. ``boxed/number``.
        gold_form: The parsed form of the gold answer; empty without a comparison.
        answer_form: The parsed form of the extracted answer; empty without a comparison.
        unread: For ``undecided``, the part of the gold or the answer that the grader did not read.
        exactly_correct: Whether the answer is correct without the tolerance. None if no tolerance
            applies, and if the gold answer is unreadable.
    """

    status: VerdictStatus
    answer: str | None
    rule: str
    gold_form: str = ""
    answer_form: str = ""
    unread: str = ""
    exactly_correct: bool | None = None


class Grader(Protocol):
    """A component that compares the answers of responses with gold answers."""

    #: The full name of the grader for manifests, e.g. ``math@6``.
    version: str

    def grade(self, requests: Sequence[GradingRequest]) -> list[Verdict]:
        """Grade responses and return their verdicts in the same order."""
        ...
