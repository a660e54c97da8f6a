"""``fsdpo_data.grade``: grade one response."""

from fsdpo_data.answers import GradingRequest, Verdict
from fsdpo_data.answers.thinking import find_thinking
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.errors import InputError


def grade(
    gold: str,
    response: str,
    grader: str | None = None,
    *,
    prompt: str = "",
    finish_reason: str = "stop",
) -> Verdict:
    r"""Grade a response against the gold answer.

    >>> grade("1/2", r"so \boxed{0.5}").status
    'correct'

    Args:
        gold: The gold answer, as its source writes it.
        response: The text of the model. Only the text after its thinking is graded.
        grader: Full name of the grader; the default of this release if None.
        prompt: The prompt of the response, which may open the thinking.
        finish_reason: `stop`, or `length` for a truncated response, in which only an announced
            answer counts.

    Raises:
        InputError: if the gold or the response is not a text.
    """
    for name, value in {"gold": gold, "response": response}.items():
        if not isinstance(value, str):
            raise InputError("expected a text.", field=name, value=value)
    thinking = find_thinking(prompt, response)
    return get_grader(grader).grade([GradingRequest(gold, response, finish_reason, thinking)])[0]
