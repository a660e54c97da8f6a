"""The request to grade a solution: the golds and the tolerance of its problem, and its text."""

from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.thinking import find_thinking
from fsdpo_data.core.entities import Problem


def grading_request(
    problem: Problem,
    response: str,
    *,
    prompt: str = "",
    finish_reason: str = "stop",
    has_separate_reasoning: bool = False,
    grade_thinking: bool = False,
) -> GradingRequest:
    """Return the request to grade a response to a problem.

    Args:
        problem: The problem. Its metadata may have alternative golds and a tolerance.
        response: The complete response, thinking included.
        prompt: The rendered prompt, which may open the thinking; empty if unknown.
        finish_reason: ``stop``, or ``length`` for a truncated response.
        has_separate_reasoning: Whether the server sent the thinking in a field of its own.
        grade_thinking: Whether a response without text after its thinking may have its answer in
            the thinking.
    """
    return GradingRequest(
        gold=problem.answer,
        response=response,
        finish_reason=finish_reason,
        thinking=find_thinking(prompt, response, has_separate_reasoning=has_separate_reasoning),
        grade_thinking=grade_thinking,
        tolerance=problem.gold_tolerance,
        alternative_golds=problem.alternative_golds,
    )
