"""The tally of indexed solutions, for the statistics of a manifest."""

from __future__ import annotations

from collections import Counter

from fsdpo_data.core.entities import COUNTED_OUTCOMES, MODEL_FAILURES
from fsdpo_data.core.lazy import pl
from fsdpo_data.dataset.tally import GradedCount, Tally
from fsdpo_data.selection.row_index import is_graded


def tally_index(solutions: pl.DataFrame) -> Tally:
    """Return the tally of solutions, without the grader's rules and the cost of sampling.

    The rows of a dataset do not have the rule that decided an outcome.
    """
    tally = Tally(solutions=solutions.height)
    by_outcome = solutions.group_by("outcome").agg(count=pl.len(), steps=pl.col("steps").sum())
    for outcome, count, steps in by_outcome.iter_rows():
        tally.outcomes[outcome] += count
        tally.labels[_label_kind(outcome)] += steps
    tally.truncated = int(solutions["truncated"].sum())
    tally.unique_texts = solutions.select(pl.struct("problem", "text").n_unique()).item()
    tally.thinking = _count_thinking(solutions)
    is_stopped = ~pl.col("truncated") & ~pl.col("thinking_closed")
    tally.stopped_thoughts = solutions.select(is_stopped.sum()).item()
    by_problem = solutions.group_by("problem", maintain_order=True).agg(
        correct=(pl.col("outcome") == "correct").sum(),
        graded=is_graded().sum(),
        total=pl.col("outcome").is_in(COUNTED_OUTCOMES).sum(),
    )
    tally.graded_counts = [
        GradedCount(correct, graded, total)
        for correct, graded, total in by_problem.select(*GradedCount._fields).iter_rows()
    ]
    return tally


def _label_kind(outcome: str) -> str:
    """Return the kind of the outcome labels of a solution, as in the manifest."""
    if outcome == "correct":
        return "positive"
    return "negative" if outcome in MODEL_FAILURES else "unlabelled"


def _count_thinking(solutions: pl.DataFrame) -> Counter[str]:
    """Return the counts of :attr:`Tally.thinking`; empty without thinking."""
    thinking = solutions.filter(pl.col("thinking_closed").is_not_null())
    if thinking.is_empty():
        return Counter()
    closed = int(thinking["thinking_closed"].sum())
    return Counter(closed=closed, unclosed=thinking.height - closed)
