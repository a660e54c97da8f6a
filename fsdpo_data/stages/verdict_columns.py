"""The columns of solutions that a verdict of the grader or of a judge decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsdpo_data.answers import Verdict
from fsdpo_data.core.entities import JUDGE_RULE_PREFIX
from fsdpo_data.core.lazy import pa
from fsdpo_data.dataset.schema import replace_column
from fsdpo_data.steps.rewards import outcome_labels


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
