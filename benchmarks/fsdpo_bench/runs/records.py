"""The records of a run: one line per problem, with everything that was decoded of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fsdpo_bench.tasks.table import shelf
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.log import LineFile, indexed, read_spans
from fsdpo_data.dataset.run import CONFIG

#: Folder of the records in a run directory, one file per benchmark.
RECORDS = "records"


def record_key(record: dict[str, Any]) -> str:
    """Name a record by its problem and its row: ASDiv asks one question twice."""
    return f"{record['problem_id']}/{record['row']}"


def own_decoders(record: Mapping[str, Any]) -> list[str]:
    """Name the decoders that made solutions of their own of a problem."""
    return [name for name, found in record["decoded"].items() if found["sample"] is None]


def record_file(out: Path, task: str) -> Path:
    """Return where the records of a benchmark are."""
    return out / RECORDS / f"{task}.jsonl"


@contextlib.contextmanager
def open_records(out: Path, task: str) -> Iterator[LineFile]:
    """Open the records of a benchmark for appending."""
    file = record_file(out, task)
    file.parent.mkdir(exist_ok=True)
    with LineFile.open(file, record_key) as lines:
        yield lines


def read_config(out: Path) -> dict[str, Any]:
    """Read what a run is; its benchmarks stand in the order of the table.

    Raises:
        InputError: if there is no run of ``fsdpo-bench`` in ``out``.
    """
    try:
        config = json.loads((out / CONFIG).read_text())
    except (OSError, ValueError):
        config = {}
    if config.get("kind") != "bench":
        raise InputError(
            f"{out}: expected a directory that `fsdpo-bench run` wrote, with {CONFIG} and "
            f"{RECORDS}/."
        )
    ranks = {name: rank for rank, name in enumerate(shelf())}
    names = sorted(config["tasks"], key=lambda name: ranks.get(name, len(ranks)))
    return {**config, "tasks": {name: config["tasks"][name] for name in names}}


def read_records(out: Path, task: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the records of a run: benchmarks in its order, problems in the order of the source.

    Raises:
        InputError: if there is no run, or it has no such benchmark.
    """
    tasks = list(read_config(out)["tasks"])
    if task is not None and task not in tasks:
        raise InputError(f"{out} has no records of {task!r}: expected one of {', '.join(tasks)}.")
    for name in [task] if task else tasks:
        if record_file(out, name).exists():
            yield from _in_order(record_file(out, name))


def _in_order(path: Path) -> Iterator[dict[str, Any]]:
    spans: dict[str, tuple[int, int]] = {}
    start = 0
    for key, length in indexed(path, record_key):
        if key is not None:
            spans.setdefault(key, (start, length))
        start += length
    keys = sorted(spans, key=lambda key: int(key.rpartition("/")[2]))
    yield from read_spans(path, [spans[key] for key in keys])
