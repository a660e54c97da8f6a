"""From solutions to grading requests, and from verdicts to the columns of solutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsdpo_data.answers import GradingRequest, Verdict
from fsdpo_data.answers.thinking import ThinkingSpan, find_thinking
from fsdpo_data.core.entities import JUDGE_RULE_PREFIX, Problem
from fsdpo_data.core.lazy import pa
from fsdpo_data.dataset.schema import replace_column
from fsdpo_data.steps.rewards import outcome_labels


def grading_request(
    problem: Problem,
    response: str,
    *,
    prompt: str = "",
    finish_reason: str = "stop",
    has_separate_reasoning: bool = False,
    is_unclosed: bool = False,
    grade_thinking: bool = False,
) -> GradingRequest:
    """Return the request to grade a response to a problem.

    Args:
        problem: The problem. Its metadata may have alternative golds and a tolerance.
        response: The complete response, thinking included.
        prompt: The rendered prompt, which may open the thinking; empty if unknown.
        finish_reason: ``stop``, or ``length`` for a truncated response.
        has_separate_reasoning: Whether the server sent the thinking in a field of its own.
        is_unclosed: Whether the response is known to be thinking that never ends.
        grade_thinking: Whether a response without text after its thinking may have its answer in
            the thinking.
    """
    thinking = find_thinking(prompt, response, has_separate_reasoning=has_separate_reasoning)
    if is_unclosed and thinking.markers is None:
        thinking = ThinkingSpan(len(response), closed=False)
    return GradingRequest(
        gold=problem.answer,
        response=response,
        finish_reason=finish_reason,
        thinking=thinking,
        grade_thinking=grade_thinking,
        tolerance=problem.gold_tolerance,
        alternative_golds=problem.alternative_golds,
    )


def mark_truncated_thinking(requests: Sequence[GradingRequest]) -> list[GradingRequest]:
    """Mark truncated responses of a run as thinking that never ends, if the template opens it.

    A server writes the start marker into the prompt, which may be unknown. Then only the end marker
    shows the thinking, and a response that is truncated before it shows nothing. Half of the
    finished responses of the same run or more have the end marker then; a stray one is no sign.

    Args:
        requests: Requests of one model and one template, such as those of a shard.
    """
    finished = [request.thinking for request in requests if request.finish_reason == "stop"]
    n_closed = sum(
        bool(span.markers is not None and span.closed and not span.start) for span in finished
    )
    is_opened = 0 < n_closed >= len(finished) / 2
    return [
        request._replace(thinking=ThinkingSpan(len(request.response), closed=False))
        if is_opened and request.finish_reason == "length" and request.thinking.markers is None
        else request
        for request in requests
    ]


def with_verdicts(
    table: pa.Table, verdicts: Sequence[Verdict], step_counts: Sequence[int], grader: str
) -> pa.Table:
    """Return solutions with the answers and outcomes of verdicts, and with outcome labels.

    Args:
        table: The solutions.
        verdicts: The verdict on each solution.
        step_counts: Number of steps of each solution.
        grader: Full name of the grader.
    """
    columns: dict[str, Sequence[Any]] = {
        "answer": [verdict.answer for verdict in verdicts],
        "outcome": [verdict.status for verdict in verdicts],
        "labels": [
            outcome_labels(verdict.status, n_steps)
            for verdict, n_steps in zip(verdicts, step_counts, strict=True)
        ],
        "verdict_by": [
            verdict.rule
            if verdict.rule.startswith(JUDGE_RULE_PREFIX)
            else f"{grader}/{verdict.rule}"
            for verdict in verdicts
        ],
        "exactly_correct": [verdict.exactly_correct for verdict in verdicts],
    }
    for name, values in columns.items():
        table = replace_column(table, name, values)
    return table


def restore_outcome_labels(table: pa.Table) -> pa.Table:
    """Return a table of solutions in which ``labels`` has the outcome labels again."""
    columns = table.select(["outcome", "completions"]).to_pylist()
    labels = [outcome_labels(row["outcome"], len(row["completions"])) for row in columns]
    return replace_column(table, "labels", labels)
