"""Stepwise rows that a tiny PRM learns in seconds: a step is right if its sum is."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any


def stepwise_rows(problems: int = 24, samples: int = 4, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    rows = []
    for problem in range(problems):
        for sample in range(samples):
            steps = rng.randrange(1, 5)
            right = sample % 2 == 0
            values = [f"{k} + {k} = {2 * k if right else 2 * k + 1}" for k in range(steps)]
            rows.append(
                {
                    "prompt": f"Problem {problem}\nSolution:\n",
                    "completions": [f"Step {k}: {value}.\n" for k, value in enumerate(values, 1)],
                    "labels": [right] * steps,
                }
            )
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
