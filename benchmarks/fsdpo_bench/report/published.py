"""The result tables of the Full-Step-DPO paper, for comparison."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fsdpo_bench.metrics.result_records import Results
from fsdpo_data.core.errors import UnavailableError

#: The folder ``benchmarks`` in a checkout. A wheel has the data in a folder next to the package.
_DATA_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class PublishedResult:
    """One cell of a table in the paper, or a number of a figure that the text states."""

    #: ``1``, ``2``, ``more-ood`` (appendix B.1) or ``prm`` (appendix B.2). The figures are
    #: ``verify`` (decoders) and ``simulation`` (continuations per step).
    table: str
    backbone: str  #: The model before preference training.
    #: ``sft`` for the backbone itself, ``dpo``, ``step-dpo`` or ``full-step-dpo``; empty for models
    #: of other publishers.
    method: str
    #: A name from ``fsdpo-bench tasks``, ``average``, or ``gpu-hours`` for the cost of the training
    #: data of a reward model.
    task: str
    decode: str  #: A decoder of ``fsdpo-bench run``, such as ``greedy`` or ``bon@8:min``.
    prm: str  #: The reward model of the decoder; empty for none.
    value: float  #: Accuracy in percent, or hours.

    @property
    def label(self) -> str:
        """The name of the row in plots and tables."""
        methods = {"dpo": "DPO", "step-dpo": "Step-DPO", "full-step-dpo": "Full-Step-DPO"}
        parts = [self.backbone, methods.get(self.method, ""), self.prm]
        return " + ".join(part for part in parts if part)


def shipped_path(name: str) -> Path:
    """Return the path of a data file or folder of ``benchmarks``.

    Raises:
        UnavailableError: if it is missing from the installation.
    """
    wheel_folder = _DATA_ROOT / "fsdpo_shipped"
    path = (wheel_folder if wheel_folder.is_dir() else _DATA_ROOT) / name
    if not path.exists():
        raise UnavailableError(f"{path} is missing. Install fsdpo again.")
    return path


@cache
def published_results() -> Sequence[PublishedResult]:
    """Return all numbers of the paper's tables and figures, in their order."""
    with shipped_path("published.csv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        return tuple(PublishedResult(**{**row, "value": float(row["value"])}) for row in rows)  # type: ignore[arg-type]


def published_results_for(task: str, decode: str = "greedy") -> list[PublishedResult]:
    """Return the paper's results for a task and a decoder."""
    return [
        result for result in published_results() if result.task == task and result.decode == decode
    ]


def published_results_of(results: Results, task: str) -> list[PublishedResult]:
    """Return the paper's greedy results for a benchmark of a run; none for other problems."""
    entry = results.run.benchmarks.get(task)
    return published_results_for(task) if entry is not None and entry.is_listed else []


def is_backbone(published_name: str, model: str) -> bool:
    """Tell whether the name of a model, with or without ``org/``, starts with a backbone's name."""
    return model.lower().rpartition("/")[2].startswith(published_name.lower())
