"""Statistics of preference pairs: used problems, margins, and the lengths of both sides.

Length is a known trap of preference data: if chosen solutions are longer on average, the policy
learns to write long texts. The statistics therefore always give the lengths of both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import gt, lt
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from fsdpo_data.core.entities import MODEL_FAILURES
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.pairs.best_worst import is_unclosed
from fsdpo_data.pairs.first_error import DROP_REASONS, StepPairSettings, find_first_errors
from fsdpo_data.pairs.rows import scan_pairs, scan_solutions
from fsdpo_data.steps.rewards import PAIR_AGGREGATE, aggregate_expr, joined_step_weights

#: The two sides of a pair, as prefixes of column names.
SIDES = ("chosen", "rejected")
#: The sign of γ in the step weights of the paper's loss, by side.
_WEIGHT_SIGNS = {"chosen": 1, "rejected": -1}
#: Number of steps, counted from the end, whose mean rewards and weights are shown.
STEP_POSITIONS = 5


Number: TypeAlias = int | float  #: A count or a mean.


@dataclass(frozen=True, slots=True)
class LastSteps:
    """Means over the last steps of one side of the pairs; the last step comes first."""

    n: list[int]  #: Number of steps at each position.
    reward: list[float]  #: Mean reward.
    weight: list[float]  #: Mean weight K·α of the paper's loss.


@dataclass(frozen=True, slots=True)
class StepWeightStats:
    """The weights that the paper's loss gives to the last steps of pairs."""

    gamma: float  #: Inverse temperature γ of the weights.
    chosen: LastSteps  #: The chosen side.
    rejected: LastSteps  #: The rejected side.


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStatistics:
    """Counts and statistics of pairs."""

    pairs: int  #: Number of pairs.
    problems: Mapping[str, int]  #: Problems by use, such as ``used`` or ``too_easy``.
    solutions: Mapping[str, int]  #: Solutions by use, such as ``chosen`` or ``truncated``.
    #: Statistics of the reward margins, such as ``mean``; None for Step-DPO.
    margin: Mapping[str, Number | None] | None = None
    #: Mean number of the first wrong step, from 1; None for pairs of complete solutions.
    first_error: float | None = None
    length: Mapping[str, Number | None]  #: Lengths of the chosen and the rejected side.
    #: Rewards and weights of the last steps; None for Step-DPO, and if no solution has several.
    step_weights: StepWeightStats | None = None

    @property
    def unit(self) -> str:
        """The unit of the lengths: tokens, or characters if some token counts are unknown."""
        return "tokens" if "chosen_tokens" in self.length else "characters"


def problem_counts(solutions: pl.LazyFrame) -> dict[str, int]:
    """Count problems by the outcomes of their solutions.

    Returns:
        ``problems``, ``too_easy`` (no incorrect solution) and ``too_hard`` (no correct solution).
        A problem without a graded solution, such as one with an unreadable gold answer, counts as
        too hard.
    """
    outcome = pl.col("outcome")
    by_problem = solutions.group_by("problem_id").agg(
        correct=(outcome == "correct").sum(), incorrect=outcome.is_in(MODEL_FAILURES).sum()
    )
    has_correct = pl.col("correct") > 0
    has_incorrect = pl.col("incorrect") > 0
    counts = by_problem.select(
        problems=pl.len(),
        too_easy=(has_correct & ~has_incorrect).sum(),
        too_hard=(~has_correct).sum(),
    )
    return collect_rows(counts, streaming=True).row(0, named=True)


def pair_statistics(
    pairs: Sequence[Path],
    solutions: Sequence[Path],
    aggregate: str | None,
    gamma: float,
    *,
    allow_unclosed: bool = False,
) -> PairStatistics:
    """Compute the statistics of pairs of complete solutions.

    Args:
        pairs: Files of pairs.
        solutions: Files of the solutions in the pairs.
        aggregate: Aggregate of step rewards for the margins; None for no margins.
        gamma: Inverse temperature γ of the step weights; see :func:`step_weight_statistics`.
        allow_unclosed: Whether solutions whose thinking never ends may be in pairs.

    Returns:
        The statistics. Margins and lengths are averages over pairs. Lengths are in
        tokens, or in characters if some token counts are unknown. ``truncated`` counts the
        truncated solutions, which are in no pair. ``unclosed`` counts other solutions whose
        thinking never ends, if there are any and they are in no pair.
    """
    table = _measure_pairs(pairs, solutions, aggregate or PAIR_AGGREGATE)
    has_token_counts = not any(table[f"{side}_tokens"].null_count() for side in SIDES)
    unit = "tokens" if has_token_counts else "characters"
    unfinished = scan_solutions(solutions).select(
        truncated=(pl.col("finish_reason") == "length").sum(), unclosed=is_unclosed().sum()
    )
    unfinished_counts = collect_rows(unfinished, streaming=True).row(0, named=True)
    if allow_unclosed or not unfinished_counts["unclosed"]:
        del unfinished_counts["unclosed"]
    return PairStatistics(
        pairs=table.height,
        problems={
            "used": table["problem"].n_unique(),
            **problem_counts(scan_solutions(solutions)),
        },
        solutions={
            "chosen": table["chosen"].n_unique(),
            "rejected": table["rejected"].n_unique(),
            **unfinished_counts,
        },
        margin=_margin_statistics(table["margin"]) if aggregate else None,
        length=_length_statistics(table, unit),
        step_weights=step_weight_statistics(pairs, gamma),
    )


def step_weight_statistics(pairs: Sequence[Path], gamma: float) -> StepWeightStats | None:
    """Compute the mean reward and the mean weight of the last steps, over the pairs.

    The weight of a step is K·α, where α is the softmax of ±γ·reward over the K steps of the
    solution (section 3.2 of the paper). DPO divided by K gives every step the weight 1. Solutions
    of one step have no choice of weights, and do not count.

    Args:
        pairs: Files of pairs.
        gamma: Inverse temperature γ.

    Returns:
        The statistics; None if no solution has several steps.
    """
    sides = {}
    for side in SIDES:
        steps = pl.concat([_weigh_last_steps(file, side, gamma) for file in pairs])
        by_position = [
            steps.filter(pl.col("position") == position) for position in range(STEP_POSITIONS)
        ]
        positions = [rows for rows in by_position if rows.height]
        if not positions:
            return None
        sides[side] = LastSteps(
            n=[rows.height for rows in positions],
            reward=[_mean(rows["reward"]) for rows in positions],
            weight=[_mean(rows["weight"]) for rows in positions],
        )
    return StepWeightStats(gamma=float(gamma), chosen=sides["chosen"], rejected=sides["rejected"])


def _weigh_last_steps(pairs: Path, side: str, gamma: float) -> pl.DataFrame:
    """Return position from the end, reward and weight K·α of the last steps of one side."""
    column = f"{side}_rewards"
    n_steps = pl.col(column).list.len()
    solutions = collect_rows(
        scan_pairs([pairs])
        .filter(n_steps > 1)
        .select(
            n_steps.alias("n_steps"),
            reward=pl.col(column).cast(pl.List(pl.Float64)),
            position=pl.int_ranges(n_steps).list.reverse(),
        )
    )
    steps = solutions.explode("reward", "position")
    alpha = joined_step_weights(
        steps["reward"].to_numpy(), solutions["n_steps"].to_numpy(), gamma, _WEIGHT_SIGNS[side]
    )
    steps = steps.with_columns(weight=pl.col("n_steps") * pl.Series(alpha))
    return steps.filter(pl.col("position") < STEP_POSITIONS)


def _measure_pairs(
    pairs: Sequence[Path], solutions: Sequence[Path], aggregate: str
) -> pl.DataFrame:
    """Return margin and lengths of every pair, with hashes of the ids instead of the ids."""
    chosen_reward = aggregate_expr("chosen_rewards", aggregate)
    rejected_reward = aggregate_expr("rejected_rewards", aggregate)
    columns = [
        pl.col("problem_id").hash().alias("problem"),
        pl.col("chosen_id").hash().alias("chosen"),
        pl.col("rejected_id").hash().alias("rejected"),
        (chosen_reward - rejected_reward).alias("margin"),
    ]
    for side in SIDES:
        columns += [
            pl.col(f"{side}_n_tokens").alias(f"{side}_tokens"),
            pl.col(side).str.len_chars().alias(f"{side}_characters"),
            pl.col(f"{side}_steps").list.len().alias(f"{side}_steps"),
        ]
    frames = join_solutions(pairs, solutions, ["n_tokens"])
    return pl.concat([frame.select(columns) for frame in frames])


def _margin_statistics(margins: pl.Series) -> dict[str, Any]:
    return {
        "mean": _round(margins.mean()),
        "min": _round(margins.min()),
        "median": _round(margins.median()),
        "max": _round(margins.max()),
        "negative": int((margins < 0).sum()),
    }


def _length_statistics(table: pl.DataFrame, unit: str) -> dict[str, Any]:
    """Return mean lengths of both sides in ``unit`` and in steps, and counts of comparisons."""
    chosen_lengths = table[f"chosen_{unit}"]
    rejected_lengths = table[f"rejected_{unit}"]
    return {
        f"chosen_{unit}": _round(chosen_lengths.mean()),
        f"rejected_{unit}": _round(rejected_lengths.mean()),
        "chosen_steps": _round(table["chosen_steps"].mean()),
        "rejected_steps": _round(table["rejected_steps"].mean()),
        "chosen_longer": int((chosen_lengths > rejected_lengths).sum()),
        "chosen_shorter": int((chosen_lengths < rejected_lengths).sum()),
    }


def step_pair_statistics(
    pairs: Sequence[Path],
    solutions: Sequence[Path],
    settings: StepPairSettings,
) -> PairStatistics:
    """Compute the statistics of Step-DPO pairs, whose sides differ in one step.

    Args:
        pairs: Files of pairs.
        solutions: Files of the solutions from which the pairs come.
        settings: The options of the selection.

    Returns:
        The statistics. ``solutions`` counts incorrect solutions by :data:`DROP_REASONS`;
        ``not_corrected`` ones have no correct continuation. ``length`` compares the first steps
        that differ, in characters.
    """
    drop_counts = Counter[str]()
    n_errors = sum(1 for file in solutions for _ in find_first_errors(file, settings, drop_counts))
    statistics = imported_pair_statistics(pairs)
    return replace(
        statistics,
        problems={**statistics.problems, **problem_counts(scan_solutions(solutions))},
        solutions={
            **{reason: drop_counts[reason] for reason in DROP_REASONS},
            # Most datasets contain no thinking.
            **({"unclosed": drop_counts["unclosed"]} if drop_counts["unclosed"] else {}),
            "not_corrected": n_errors - statistics.pairs,
        },
    )


def imported_pair_statistics(pairs: Sequence[Path]) -> PairStatistics:
    """Compute the statistics of imported Step-DPO pairs, whose solutions are not graded.

    Returns:
        The counts of :func:`step_pair_statistics` that need neither outcomes nor rewards.
    """
    problem_ids = set()
    step_numbers = []
    chosen_lengths = []
    rejected_lengths = []
    for row in read_pair_steps(pairs):
        difference = find_first_difference(row)
        problem_ids.add(row["problem_id"])
        step_numbers.append(difference.step + 1)
        chosen_lengths.append(len(difference.chosen_step))
        rejected_lengths.append(len(difference.rejected_step))
    return PairStatistics(
        pairs=len(step_numbers),
        problems={"used": len(problem_ids)},
        solutions={},
        first_error=_rounded_mean(step_numbers),
        length=_step_length_statistics(chosen_lengths, rejected_lengths),
    )


def _step_length_statistics(
    chosen_lengths: Sequence[int], rejected_lengths: Sequence[int]
) -> dict[str, Any]:
    """Return mean step lengths of both sides in characters, and counts of comparisons."""
    return {
        "chosen_characters": _rounded_mean(chosen_lengths),
        "rejected_characters": _rounded_mean(rejected_lengths),
        "chosen_longer": sum(map(gt, chosen_lengths, rejected_lengths)),
        "chosen_shorter": sum(map(lt, chosen_lengths, rejected_lengths)),
    }


class FirstDifference(NamedTuple):
    """The first step in which the sides of a pair differ."""

    step: int  #: Index of the step, from 0.
    chosen_step: str  #: The chosen step; empty if the chosen side ends before it.
    rejected_step: str  #: The rejected step; empty if the rejected side ends before it.


def is_same_step(step: str, other: str) -> bool:
    """Return whether two steps have the same text; white space does not count.

    The white space at the end of a step depends on the next step.
    """
    return step.split() == other.split()


def find_first_difference(row: Mapping[str, Any]) -> FirstDifference:
    """Find the first step in which the sides of a pair differ; see :func:`is_same_step`."""
    chosen_steps = row["chosen_steps"]
    rejected_steps = row["rejected_steps"]
    index = 0
    common_length = min(len(chosen_steps), len(rejected_steps))
    while index < common_length and is_same_step(chosen_steps[index], rejected_steps[index]):
        index += 1
    return FirstDifference(
        step=index,
        chosen_step=chosen_steps[index] if index < len(chosen_steps) else "",
        rejected_step=rejected_steps[index] if index < len(rejected_steps) else "",
    )


def read_pair_steps(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield the steps of both sides of each pair, and the rewards of the rejected side."""
    columns = ("problem_id", "rejected_id", "chosen_steps", "rejected_steps", "rejected_rewards")
    for file in files:
        yield from collect_rows(scan_pairs([file]).select(columns)).iter_rows(named=True)


def _rounded_mean(values: Sequence[int]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None


def _mean(values: pl.Series) -> float:
    """Return the rounded mean of at least one value."""
    return round(float(values.mean()), 4)  # type: ignore[arg-type]


def _round(value: Any) -> float | None:
    return None if value is None else round(float(value), 4)


def join_solutions(
    pairs: Sequence[Path],
    solutions: Sequence[Path],
    columns: Sequence[str],
    sides: Sequence[str] = SIDES,
) -> Iterator[pl.DataFrame]:
    """Yield the pairs of each file, in their order, with columns of their solutions.

    Column ``answer`` becomes ``chosen_answer`` and ``rejected_answer``. The values are null if the
    solution does not exist.

    The stages write the solutions of a file of pairs to the file with the same index. The search
    starts there, and only missing solutions are read from the other files.

    Args:
        pairs: Files of pairs.
        solutions: Files of solutions.
        columns: Columns of the solutions to add.
        sides: The sides to join.
    """
    has_same_shards = len(pairs) == len(solutions)
    for index, file in enumerate(pairs):
        frame = collect_rows(scan_pairs([file]))
        ids = pl.concat([frame[f"{side}_id"] for side in sides]).unique()
        first_files = solutions[index : index + 1] if has_same_shards else solutions
        matches = _select_by_id(first_files, columns, ids)
        missing_ids = ids.filter(~ids.is_in(matches["solution_id"].implode()))
        if has_same_shards and len(missing_ids):
            matches = pl.concat([matches, _select_by_id(solutions, columns, missing_ids)])
        for side in sides:
            frame = frame.join(
                matches.select(pl.all().name.prefix(f"{side}_")),
                left_on=f"{side}_id",
                right_on=f"{side}_solution_id",
                how="left",
                maintain_order="left",
            )
        yield frame


def _select_by_id(files: Sequence[Path], columns: Sequence[str], ids: pl.Series) -> pl.DataFrame:
    """Read ``columns`` of the solutions with these ids."""
    rows = scan_solutions(files).filter(pl.col("solution_id").is_in(ids.implode()))
    return collect_rows(rows.select(["solution_id", *columns]))
