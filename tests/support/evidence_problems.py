"""Problems for the recipes of the evidence at toy size."""

from __future__ import annotations

import json
from pathlib import Path

from fsdpo_data.problems.embedded.generator import make_problems


def write_problems(folder: Path) -> None:
    """Write generated training and test problems, and rows in ProcessBench's format."""
    folder.mkdir()
    for split in ("train", "test"):
        rows = [problem.to_row() for problem in make_problems(split, 20, 0)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
    rows = [
        {"id": f"row-{index}", "problem": f"What is {index} + 1?", "label": label}
        | {"steps": [f"{index} + 1 = {index + 1}", f"It is {index + 2}."]}
        for index, label in enumerate((1, -1, 0, -1))
    ]
    (folder / "processbench.json").write_text(json.dumps(rows), encoding="utf-8")
