"""The rows of benchmarks that have a problem, which its metadata list."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: Key of the rows in the metadata of a problem. A dataset of training problems has no such key.
BENCHMARKS_KEY = "benchmarks"


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """One row of a benchmark with a problem; a problem that is listed twice has two rows."""

    name: str  #: Name of the benchmark, such as ``math500``.
    row: int  #: Index of the problem in the benchmark, from 0.
    #: Labels of the groups that reports compare, such as ``{"level": "5"}``.
    groups: Mapping[str, str] = field(default_factory=dict)
    cluster: str | None = None  #: The base problem, if several problems share one.

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the metadata."""
        return asdict(self)


def benchmark_rows(metadata: Mapping[str, Any]) -> list[BenchmarkRow]:
    """Return the rows of benchmarks that have a problem; empty for a problem of no benchmark.

    Raises:
        ValueError: if the entry of the metadata is not a list of rows.
    """
    entries = metadata.get(BENCHMARKS_KEY, [])
    try:
        return [BenchmarkRow(**entry) for entry in entries]
    except TypeError:
        raise ValueError(f"{BENCHMARKS_KEY}: expected a list of rows of benchmarks") from None
