"""The record of imported step labels, which :mod:`fsdpo_data.exchange` writes."""

from __future__ import annotations

from typing import TypeAlias

from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.lazy import pl
from fsdpo_data.dataset.manifest import StageCounts, StageRecord
from fsdpo_data.dataset.plots import count_tenths
from fsdpo_data.dataset.stage_registry import (
    STAGES,
    Distribution,
    Row,
    StageEntry,
)
from fsdpo_data.dataset.statistics import DatasetStatistics

IMPORT_STAGE = "import"  #: Name of the import of step labels.


class ImportSettings(FileModel):
    """The format of imported step labels."""

    format: str  #: Name of the format, such as ``prm800k``.
    meaning: str  #: How the labels of the format became labels from 0 to 1.
    drops: str  #: Data of the rows that were not imported.
    step_separator: str | None = None  #: Text between two steps, if it is not the format's.
    #: Whether the steps after the first wrong step were dropped, although they have labels.
    first_error_only: bool = False

    @property
    def changes_text(self) -> bool:
        """Whether options gave the solutions other texts than the format does."""
        return self.step_separator is not None or self.first_error_only


class ImportCounts(StageCounts):
    """Counts of imported step labels."""

    rows: int  #: Rows of the imported file.


#: The entry of imported step labels.
ImportRecord: TypeAlias = StageRecord[ImportSettings, ImportCounts]


def _summarize(record: ImportRecord, statistics: DatasetStatistics) -> list[Row]:
    """Return the row of the summary."""
    right, wrong = statistics.imported_steps
    text = (
        f"{record.options.format}: {right:,} right and {wrong:,} wrong steps, from "
        f"{record.counts.rows:,} rows"
    )
    return [("imported labels", text)]


def _plot(record: ImportRecord, statistics: DatasetStatistics) -> dict[str, Distribution]:
    """Return the distribution of the labels."""
    labels = (
        statistics.scan_solutions()
        .select("imported_labels")
        .explode("imported_labels")
        .drop_nulls()
    )
    return {"Steps by imported label": count_tenths(labels, pl.col("imported_labels"))}


STAGES.register(
    StageEntry(
        name=IMPORT_STAGE, record=ImportRecord, summarize=_summarize, plot=_plot, card_row=""
    )
)
