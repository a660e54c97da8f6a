"""Preference pairs whose right sides add up and whose wrong sides do not."""

from __future__ import annotations

import random
from typing import Any


def preference_rows(prompts: int = 6, top: int = 2, seed: int = 0) -> list[dict[str, Any]]:
    """``top`` right against ``top`` wrong solutions of each prompt, as rows of ``pairs``."""
    rng = random.Random(seed)
    rows = []
    for prompt in range(prompts):
        sides = [_solutions(prompt, right, top, rng) for right in (True, False)]
        for chosen, chosen_rewards in sides[0]:
            for rejected, rejected_rewards in sides[1]:
                rows.append(
                    {
                        "prompt": f"Problem {prompt}\nSolution:\n",
                        "chosen": "".join(chosen),
                        "rejected": "".join(rejected),
                        "chosen_steps": chosen,
                        "rejected_steps": rejected,
                        "chosen_rewards": chosen_rewards,
                        "rejected_rewards": rejected_rewards,
                    }
                )
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
