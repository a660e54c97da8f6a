"""What a set of step pairs is like, and what must hold for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import gt, lt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.rows import scan
from fsdpo_data.pairs.statistics import problem_counts

if TYPE_CHECKING:
    from fsdpo_data.pairs.first_error import StepPairSpec

#: What becomes of incorrect solutions; see :func:`fsdpo_data.pairs.first_error.first_errors`.
FATES = ("incorrect", "truncated", "unscored", "no_error", "repeated", "over_limit")


def step_pair_statistics(
    pairs: Sequence[Path], solutions: Sequence[Path], spec: StepPairSpec
) -> dict[str, Any]:
    """Describe pairs from the files they and their solutions are in.

    Returns:
        Plain values for the manifest: ``pairs``, ``problems``, ``solutions`` (incorrect ones by
        what became of them; ``not_put_right`` had no right continuation), ``first_error`` (mean
        number of the wrong step, from 1), and ``length``: characters of the two steps in which
        the sides differ.
    """
    from fsdpo_data.pairs.first_error import first_errors

    fates = Counter[str]()
    asked = sum(1 for file in solutions for _ in first_errors(file, spec, fates))
    steps = [(place, *map(len, texts)) for place, *texts in map(differing, _rows(pairs))]
    chosen, rejected = ([sizes[side] for sizes in steps] for side in (1, 2))
    used = {row["problem_id"] for row in _rows(pairs)}
    return {
        "pairs": len(steps),
        "problems": {"used": len(used), **problem_counts(scan(solutions))},
        "solutions": {
            **{fate: fates[fate] for fate in FATES},
            "not_put_right": asked - len(steps),
        },
        "first_error": _mean([place + 1 for place, *_ in steps]),
        "length": {
            "chosen_characters": _mean(chosen),
            "rejected_characters": _mean(rejected),
            "chosen_longer": sum(map(gt, chosen, rejected)),
            "chosen_shorter": sum(map(lt, chosen, rejected)),
        },
    }


def differing(row: Mapping[str, Any]) -> tuple[int, str, str]:
    """Return where the sides of a pair differ first, and the steps there; empty where one ends."""
    chosen, rejected = row["chosen_steps"], row["rejected_steps"]
    place = 0
    while place < min(len(chosen), len(rejected)) and chosen[place] == rejected[place]:
        place += 1
    at = ["".join(steps[place : place + 1]) for steps in (chosen, rejected)]
    return place, at[0], at[1]


def broken_step_pairs(pairs: Sequence[Path], threshold: float) -> Iterator[str]:
    """Yield a line if the sides of pairs do not differ first at the first error."""
    misplaced = [
        row["rejected_id"] for row in _rows(pairs) if differing(row)[0] != _error(row, threshold)
    ]
    if misplaced:
        yield (
            f"{len(misplaced)} pairs differ elsewhere than at the first step below {threshold}: "
            f"{', '.join(misplaced[:3])}"
        )


def _error(row: Mapping[str, Any], threshold: float) -> int | None:
    rewards = row["rejected_rewards"] or []
    return next((k for k, reward in enumerate(rewards) if reward < threshold), None)


def _rows(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    columns = ("problem_id", "rejected_id", "chosen_steps", "rejected_steps", "rejected_rewards")
    for file in files:
        yield from scan([file]).select(columns).collect().iter_rows(named=True)


def _mean(values: Sequence[int]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None
