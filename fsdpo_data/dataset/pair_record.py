"""The record of the stage that forms preference pairs, whose rows every seal checks."""

from __future__ import annotations

from fsdpo_data.dataset.manifest import StageRecord
from fsdpo_data.pairs.checks import PairSettings
from fsdpo_data.pairs.statistics import PairCounts


class PairRecord(StageRecord[PairSettings, PairCounts]):
    """The entry of the stage that formed the pairs."""
