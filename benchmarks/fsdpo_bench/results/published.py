"""The tables of the Full-Step-DPO paper, for comparison."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fsdpo_data.core.errors import UnavailableError

#: In a checkout this is ``benchmarks``; a wheel puts them into a folder beside the package.
_DATA_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class PublishedResult:
    """One cell of a table of the paper."""

    table: str  #: ``1``, ``2``, ``more-ood`` (appendix B.1) or ``prm`` (appendix B.2).
    backbone: str
    #: ``sft`` for the backbone itself, ``dpo``, ``step-dpo``, ``full-step-dpo``; empty for other
    #: people's models.
    method: str
    task: str  #: As ``fsdpo-bench list`` has it, or ``average``.
    decode: str  #: ``greedy``, ``sc@8`` or ``bon@8:min``.
    prm: str
    value: float
    #: The change against the backbone as printed; empty where the table has none. One of them is a
    #: slip: 20.0 after 53.9 is printed as -23.9.
    delta: str

    @property
    def label(self) -> str:
        """Its name in a plot or a table."""
        name = {"dpo": "DPO", "step-dpo": "Step-DPO", "full-step-dpo": "Full-Step-DPO"}
        parts = [self.backbone, name.get(self.method, ""), self.prm]
        return " + ".join(part for part in parts if part)


def shipped_path(name: str) -> Path:
    """Return a file or folder of ``benchmarks`` that is no module; Unavailable if it is missing."""
    folder = _DATA_ROOT / "fsdpo_shipped"
    path = (folder if folder.is_dir() else _DATA_ROOT) / name
    if not path.exists():
        raise UnavailableError(f"{path} is missing. Install fsdpo again.")
    return path


@cache
def published_results() -> Sequence[PublishedResult]:
    """Return every number of the paper's tables, in their order."""
    with shipped_path("published.csv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        return tuple(PublishedResult(**{**row, "value": float(row["value"])}) for row in rows)  # type: ignore[arg-type]


def published_results_for(task: str, decode: str = "greedy") -> list[PublishedResult]:
    """Return what the paper reports of a task under one decoding, in its order."""
    return [each for each in published_results() if each.task == task and each.decode == decode]


def is_backbone(published_name: str, model: str) -> bool:
    """Tell whether a model by that name (``org/name``, short name) is that backbone or from it."""
    return model.lower().rpartition("/")[2].startswith(published_name.lower())
