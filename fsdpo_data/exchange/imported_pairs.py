"""The stage that pairs imported solutions, for formats whose rows are preference pairs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.dataset.manifest import AnyRecord
from fsdpo_data.dataset.pair_rows import join_pair_sides
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.dataset.stage import DatasetDraft, Stage
from fsdpo_data.dataset.stage_records import PAIR_STAGE
from fsdpo_data.pairs.checks import ImportedPairSettings


@dataclass(frozen=True)
class ImportedPairStage(Stage):
    """Adds the ``pairs`` config: each imported row gave a chosen and then a rejected solution."""

    name = PAIR_STAGE
    writes = ("pairs",)

    def options(self) -> ImportedPairSettings:
        """Return the origin of the pairs; the entry of the import has their format."""
        return ImportedPairSettings(style="imported")

    def run(self, draft: DatasetDraft) -> AnyRecord:
        """Write one file of pairs per file of solutions."""
        draft.add_pairs(_pair_neighbours)
        return self.make_record()


def _pair_neighbours(file: Path) -> pa.Table:
    """Return the pairs of the first and second solution, of the third and fourth, and so on."""
    row = pl.col("row")
    rows = scan_rows("solutions", [file]).select("solution_id").with_row_index("row")
    pairs = rows.select(chosen=row.gather_every(2), rejected=row.gather_every(2, offset=1))
    return join_pair_sides(file, pairs)
