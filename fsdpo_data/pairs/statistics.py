"""What a set of pairs is like: problems used, margins, and the lengths of both sides.

Length is the classic trap of preference data: where the chosen side is longer on average, a policy
learns to be long. So both sides' lengths are always shown beside each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import gt, lt
from pathlib import Path
from typing import Any

from fsdpo_data.core.entities import MODEL_FAILURES
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.row_files import scan_parquet
from fsdpo_data.pairs.first_error import DROP_REASONS, StepPairSpec, find_first_errors
from fsdpo_data.steps.rewards import aggregate_expr


def problem_counts(solutions: pl.LazyFrame) -> dict[str, int]:
    """Count problems by what their solutions' outcomes allow.

    Returns:
        ``problems``, ``too_easy`` (no incorrect solution), ``too_hard`` (no correct one). A
        problem with neither, because its gold cannot be read, is too hard.
    """
    outcome = pl.col("outcome")
    by_problem = solutions.group_by("problem_id").agg(
        right=(outcome == "correct").sum(), wrong=outcome.is_in(MODEL_FAILURES).sum()
    )
    right, wrong = pl.col("right"), pl.col("wrong")
    counted = by_problem.select(
        problems=pl.len(), too_easy=((right > 0) & (wrong == 0)).sum(), too_hard=(right == 0).sum()
    )
    return counted.collect(engine="streaming").row(0, named=True)


def pair_statistics(
    pairs: Sequence[Path], solutions: Sequence[Path], aggregate: str
) -> dict[str, Any]:
    """Describe pairs from the files they and their solutions are in.

    Returns:
        Plain values for the manifest; margins and lengths are over pairs: of texts in tokens, or
        in characters where the tokens of some are unknown. ``truncated`` solutions stopped on
        length and stand in no pair.
    """
    numbers = pl.concat(
        [
            frame.select(
                problem=pl.col("problem_id").hash(),
                chosen=pl.col("chosen_id").hash(),
                rejected=pl.col("rejected_id").hash(),
                margin=aggregate_expr("chosen_rewards", aggregate)
                - aggregate_expr("rejected_rewards", aggregate),
                **{f"{side}_tokens": pl.col(f"{side}_n_tokens") for side in SIDES},
                **{f"{side}_characters": pl.col(side).str.len_chars() for side in SIDES},
                **{f"{side}_steps": pl.col(f"{side}_steps").list.len() for side in SIDES},
            )
            for frame in join_solutions(pairs, solutions, ["n_tokens"])
        ]
    )
    truncated = scan_parquet(solutions).select((pl.col("finish_reason") == "length").sum())
    counted = not any(numbers[f"{side}_tokens"].null_count() for side in SIDES)
    size = "tokens" if counted else "characters"
    chosen, rejected = (numbers[f"{side}_{size}"] for side in SIDES)
    return {
        "pairs": numbers.height,
        "problems": {
            "used": numbers["problem"].n_unique(),
            **problem_counts(scan_parquet(solutions)),
        },
        "solutions": {
            **{side: numbers[side].n_unique() for side in SIDES},
            "truncated": int(truncated.collect(engine="streaming").item()),
        },
        "margin": {
            **{
                name: _round(getattr(numbers["margin"], name)())
                for name in ("mean", "min", "median", "max")
            },
            "negative": int((numbers["margin"] < 0).sum()),
        },
        "length": {
            **{
                f"{side}_{unit}": _round(numbers[f"{side}_{unit}"].mean())
                for unit in (size, "steps")
                for side in SIDES
            },
            "chosen_longer": int((chosen > rejected).sum()),
            "chosen_shorter": int((chosen < rejected).sum()),
        },
    }


def step_pair_statistics(
    pairs: Sequence[Path], solutions: Sequence[Path], spec: StepPairSpec
) -> dict[str, Any]:
    """Describe pairs from the files they and their solutions are in.

    Returns:
        Plain values for the manifest: ``pairs``, ``problems``, ``solutions`` (incorrect ones by
        what became of them; ``not_corrected`` had no right continuation), ``first_error`` (mean
        number of the wrong step, from 1), and ``length``: characters of the two steps in which
        the sides differ.
    """
    fates = Counter[str]()
    asked = sum(1 for file in solutions for _ in find_first_errors(file, spec, fates))
    used, places, chosen, rejected = set(), [], [], []
    for row in read_pair_steps(pairs):
        place, right, wrong = find_first_difference(row)
        used.add(row["problem_id"])
        places.append(place + 1)
        chosen.append(len(right))
        rejected.append(len(wrong))
    return {
        "pairs": len(places),
        "problems": {"used": len(used), **problem_counts(scan_parquet(solutions))},
        "solutions": {**{f: fates[f] for f in DROP_REASONS}, "not_corrected": asked - len(places)},
        "first_error": _rounded_mean(places),
        "length": {
            "chosen_characters": _rounded_mean(chosen),
            "rejected_characters": _rounded_mean(rejected),
            "chosen_longer": sum(map(gt, chosen, rejected)),
            "chosen_shorter": sum(map(lt, chosen, rejected)),
        },
    }


def find_first_difference(row: Mapping[str, Any]) -> tuple[int, str, str]:
    """Return where the sides of a pair differ first, and the steps there; empty where one ends."""
    chosen, rejected = row["chosen_steps"], row["rejected_steps"]
    place = 0
    while place < min(len(chosen), len(rejected)) and chosen[place] == rejected[place]:
        place += 1
    at = ["".join(steps[place : place + 1]) for steps in (chosen, rejected)]
    return place, at[0], at[1]


def read_pair_steps(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield of each pair the steps of both sides, and the rewards of the rejected one."""
    columns = ("problem_id", "rejected_id", "chosen_steps", "rejected_steps", "rejected_rewards")
    for file in files:
        yield from scan_parquet([file]).select(columns).collect().iter_rows(named=True)


def _rounded_mean(values: Sequence[int]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None


def _round(value: Any) -> float | None:
    return None if value is None else round(float(value), 4)


SIDES = ("chosen", "rejected")


def join_solutions(
    pairs: Sequence[Path],
    solutions: Sequence[Path],
    columns: Sequence[str],
    sides: Sequence[str] = SIDES,
) -> Iterator[pl.DataFrame]:
    """Yield the pairs of each file with columns of the solutions they name, in their order.

    Column ``answer`` comes as ``chosen_answer`` and so on, null where there is no such solution.

    The solutions of a file of pairs are in the file of the same place, where stages put them, so
    that one is looked into first; the rest of the dataset only for what is not there.
    """
    aligned = len(pairs) == len(solutions)
    for place, file in enumerate(pairs):
        frame = scan_parquet([file]).collect()
        wanted = pl.concat([frame[f"{side}_id"] for side in sides]).unique()
        found = _select_by_id(
            solutions[place : place + 1] if aligned else solutions, columns, wanted
        )
        absent = wanted.filter(~wanted.is_in(found["solution_id"].implode()))
        if aligned and len(absent):
            found = pl.concat([found, _select_by_id(solutions, columns, absent)])
        for side in sides:
            named = found.select(pl.all().name.prefix(f"{side}_"))
            frame = frame.join(
                named,
                left_on=f"{side}_id",
                right_on=f"{side}_solution_id",
                how="left",
                maintain_order="left",
            )
        yield frame


def _select_by_id(files: Sequence[Path], columns: Sequence[str], ids: pl.Series) -> pl.DataFrame:
    rows = scan_parquet(files).filter(pl.col("solution_id").is_in(ids.implode()))
    return rows.select("solution_id", *columns).collect()
