"""The columns ``labels`` and ``rollouts`` of solutions: their statistics, and outcome labels."""

from __future__ import annotations

from fsdpo_data.core.lazy import pa
from fsdpo_data.dataset.schema import replace_column
from fsdpo_data.steps.rewards import outcome_labels


def restore_outcome_labels(table: pa.Table) -> pa.Table:
    """Return a table of solutions in which ``labels`` has the outcome labels again."""
    columns = table.select(["outcome", "completions"]).to_pylist()
    labels = [outcome_labels(row["outcome"], len(row["completions"])) for row in columns]
    return replace_column(table, "labels", labels)
