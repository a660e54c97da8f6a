"""The columns ``labels`` and ``rollouts`` of solutions: their statistics, and outcome labels."""

from __future__ import annotations

from pathlib import Path

from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.schema import replace_column, scan_rows
from fsdpo_data.steps.first_error import RIGHT_STEP_LABEL
from fsdpo_data.steps.rewards import outcome_labels


class LabelStats(FileModel):
    """Statistics of step labels."""

    steps: int  #: Steps with a label.
    mean: float | None  #: Mean label.
    disagreements: int  #: Steps whose rounded label differs from the outcome label.


def label_stats(files: list[Path], *, is_searched: bool) -> LabelStats:
    """Return the number of labelled steps, their mean label, and disagreements with outcomes.

    Args:
        files: Files of solutions.
        is_searched: Whether ``labels`` has the result of a search for the first error. Otherwise
            the label of a step is its fraction of correct continuations, rounded to compare it
            with the outcome label.
    """
    has_labels = pl.col("rollouts").is_not_null() & pl.col("labels").is_not_null()
    solutions = scan_rows("solutions", files).filter(has_labels)
    if is_searched:
        is_correct = pl.col("outcome") == "correct"
        steps = solutions.select("labels", is_correct=is_correct).explode("labels").drop_nulls()
        label = pl.col("labels")
        disagrees = label != pl.col("is_correct")
    else:
        steps = solutions.select("labels", "rollouts").explode("labels", "rollouts").drop_nulls()
        counts = pl.col("rollouts").struct
        label = counts.field("n_correct") / counts.field("n")
        disagrees = (label >= RIGHT_STEP_LABEL) != pl.col("labels")
    stats = steps.select(steps=pl.len(), mean=label.mean(), disagreements=disagrees.sum())
    row = collect_rows(stats).row(0, named=True)
    mean = None if row["mean"] is None else round(row["mean"], 4)
    return LabelStats(steps=row["steps"], mean=mean, disagreements=row["disagreements"])


def count_labels(files: list[Path]) -> dict[str, int]:
    """Return the counts ``labels`` of a manifest: steps by the value of ``labels``."""
    n_steps = pl.col("completions").list.len()
    n_right = pl.col("labels").list.sum()
    is_labelled = pl.col("labels").is_not_null()
    counts = scan_rows("solutions", files).select(
        steps=n_steps.sum(),
        positive=n_right.sum(),
        negative=(n_steps - n_right).filter(is_labelled).sum(),
        unlabelled=n_steps.filter(~is_labelled).sum(),
    )
    return {name: int(value) for name, value in collect_rows(counts).row(0, named=True).items()}


def restore_outcome_labels(table: pa.Table) -> pa.Table:
    """Return a table of solutions in which ``labels`` has the outcome labels again."""
    columns = table.select(["outcome", "completions"]).to_pylist()
    labels = [outcome_labels(row["outcome"], len(row["completions"])) for row in columns]
    return replace_column(table, "labels", labels)
