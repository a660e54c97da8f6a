"""Preference pairs whose right sides add up and whose wrong sides do not."""

from __future__ import annotations

import random
from typing import Any


def pair_row(
    prompt: str, chosen: tuple[list[str], list[float]], rejected: tuple[list[str], list[float]]
) -> dict[str, Any]:
    """Return a row of ``pairs`` of two solutions, each its steps and their rewards."""
    return {
        "prompt": prompt,
        "chosen": "".join(chosen[0]),
        "rejected": "".join(rejected[0]),
        "chosen_steps": chosen[0],
        "rejected_steps": rejected[0],
        "chosen_rewards": chosen[1],
        "rejected_rewards": rejected[1],
    }


def preference_rows(prompts: int = 6, top: int = 2, seed: int = 0) -> list[dict[str, Any]]:
    """``top`` right against ``top`` wrong solutions of each prompt, as rows of ``pairs``."""
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for prompt in range(prompts):
        sides = [_solutions(prompt, right, top, rng) for right in (True, False)]
        rows += [
            pair_row(f"Problem {prompt}\nSolution:\n", chosen, rejected)
            for chosen in sides[0]
            for rejected in sides[1]
        ]
    return rows


def _solutions(
    prompt: int, right: bool, top: int, rng: random.Random
) -> list[tuple[list[str], list[float]]]:
    made = []
    for number in range(top):
        first = f"Step 1: take {prompt}.\n"
        sums = [(k, 2 * k if right else 2 * k + 1) for k in range(number + 1, number + 3)]
        steps = [first, *(f"Step {k + 1}: {k} + {k} = {total}.\n" for k, total in sums)]
        made.append((steps, [round(rng.random(), 3) for _ in steps]))
    return made
