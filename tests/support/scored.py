"""Solutions to score."""

from __future__ import annotations

import random
from typing import Any

from fsdpo_data.core.identity import ModelRef
from fsdpo_data.engines.scorers import ScorerInput

REF = ModelRef("prm", "0")


def solutions(problems: int = 12, samples: int = 5, seed: int = 0) -> list[ScorerInput]:
    """Prompts and solutions of many lengths; some prompts have one solution only."""
    rng = random.Random(seed)
    items = []
    for problem in range(problems):
        prompt = f"Problem {problem}: " + "and 3 " * rng.randrange(1, 12) + "\nSolution:\n"
        for _ in range(samples if problem % 4 else 1):
            steps = [
                f"Step {k}: {rng.randrange(100)} + {rng.randrange(100)} = 7"
                + " so" * (k * k)
                + "\n"
                for k in range(1, rng.randrange(2, 6))
            ]
            items.append(ScorerInput(prompt, steps))
    rng.shuffle(items)
    return items


def worst(rewards: list[Any], expected: list[list[float]]) -> float:
    assert [len(solution_rewards) for solution_rewards in rewards] == [
        len(solution_rewards) for solution_rewards in expected
    ]
    pairs = [zip(a, b, strict=True) for a, b in zip(rewards, expected, strict=True)]
    return max(abs(a - b) for pair in pairs for a, b in pair)
