"""The gold answers of every benchmark, read straight from the public files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fsdpo_data.answers.extraction.boxes import last_box_content


def all_golds(shared: Path) -> dict[str, list[str]]:
    """Return the golds of each benchmark, in file order; an empty gold is kept."""
    root = shared / "data/benchmarks"
    return {
        "gsm8k": [row["answer"].split("#### ")[-1] for row in _rows(root / "gsm8k/test.jsonl")],
        "math": [
            last_box_content(row["solution"]) or "" for row in _rows(root / "math/test.jsonl")
        ],
        "ocw": [row["answer"] for row in _rows(root / "ocw/test.jsonl")],
        "gk2023": [row["answer"] for row in _rows(root / "gk2023/test.jsonl")],
        "svamp": [str(row["Answer"]) for row in _rows(root / "svamp/test.jsonl")],
        "addsub": [str(row["lSolutions"][0]) for row in _rows(root / "addsub/test.jsonl")],
        "asdiv": [row["answer"] for row in _rows(root / "asdiv/test.jsonl")],
        "gsm-ic2": [str(row["gold_answer"]) for row in _rows(root / "gsm_ic2/test.jsonl")],
        "gsm-icm": [str(row["gold_answer"]) for row in _rows(root / "gsm_icm/test.jsonl")],
    }


def unique_golds(shared: Path) -> list[str]:
    """Return every different non-empty gold once, in order of first appearance."""
    golds = [gold for group in all_golds(shared).values() for gold in group if gold.strip()]
    return list(dict.fromkeys(golds))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from (json.loads(line) for line in file)
