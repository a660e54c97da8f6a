"""Preference pairs whose chosen solutions have right sums and whose rejected ones do not."""

from __future__ import annotations

import random
from typing import Any


def pair_row(
    prompt: str, chosen: tuple[list[str], list[float]], rejected: tuple[list[str], list[float]]
) -> dict[str, Any]:
    """Return a row of ``pairs``; each solution is given by its steps and their rewards."""
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
    """Pair ``top`` right with ``top`` wrong solutions of each prompt, as rows of ``pairs``."""
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for prompt in range(prompts):
        right_solutions = _make_solutions(prompt, is_right=True, count=top, rng=rng)
        wrong_solutions = _make_solutions(prompt, is_right=False, count=top, rng=rng)
        rows += [
            pair_row(f"Problem {prompt}\nSolution:\n", chosen, rejected)
            for chosen in right_solutions
            for rejected in wrong_solutions
        ]
    return rows


def _make_solutions(
    prompt: int, *, is_right: bool, count: int, rng: random.Random
) -> list[tuple[list[str], list[float]]]:
    """Return solutions as steps and random rewards; each wrong sum is too large by 1."""
    solutions = []
    for number in range(count):
        first = f"Step 1: take {prompt}.\n"
        sums = [(k, 2 * k if is_right else 2 * k + 1) for k in range(number + 1, number + 3)]
        steps = [first, *(f"Step {k + 1}: {k} + {k} = {total}.\n" for k, total in sums)]
        solutions.append((steps, [round(rng.random(), 3) for _ in steps]))
    return solutions
