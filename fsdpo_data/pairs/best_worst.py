"""The best solutions of a problem against its worst: the paper's pairs (sections 3.4 and 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fsdpo_data.core.entities import MODEL_FAILURES
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.options import Option, Options
from fsdpo_data.steps.rewards import AGGREGATES, aggregate_expr


@dataclass(frozen=True, slots=True)
class PairSpec(Options):
    """How pairs are chosen.

    Attributes:
        top: Solutions on each side (the paper's T); T × T pairs at most.
        aggregate: Step rewards to one reward per solution.
        require_outcome: Best *correct* against worst *incorrect* (the paper's section 3.4). If
            false, best against worst by reward alone (its section 4.1); no solution is then on
            both sides, and the better one of a pair has the higher reward.
        max_pairs: Pairs per problem at most, those of the widest margin; None for all.
        min_margin: Reward of the chosen less that of the rejected, at least; None for any.
    """

    top: Annotated[int, Option(min=1)] = 4
    aggregate: Annotated[str, Option(choices=AGGREGATES)] = "mean"
    require_outcome: bool = True
    max_pairs: Annotated[int | None, Option(min=1)] = None
    min_margin: Annotated[float | None, Option(min=-1, max=1)] = None


def choose_pairs(solutions: pl.LazyFrame, spec: PairSpec) -> pl.LazyFrame:
    """Choose the pairs among the solutions of some problems.

    The same solutions give the same pairs: equal rewards rank by their order in the file, which is
    that of the samples.

    Of a pair come ``chosen`` and ``rejected``, row numbers in ``solutions``, in the order of the
    problems.
    """
    ranked = _rank_solutions(solutions, spec)
    sides = [
        ranked.filter(pl.col(f"{side}_rank") < spec.top).select(
            "problem_id",
            pl.col("row").alias(side),
            pl.col("reward").alias(f"{side}_reward"),
            f"{side}_rank",
        )
        for side in ("chosen", "rejected")
    ]
    pairs = (
        sides[0]
        .join(sides[1], on="problem_id")
        .with_columns(margin=pl.col("chosen_reward") - pl.col("rejected_reward"))
        .sort("chosen_rank", "rejected_rank")
    )
    if not spec.require_outcome:
        pairs = pairs.filter(pl.col("margin") > 0)
    if spec.min_margin is not None:
        pairs = pairs.filter(pl.col("margin") >= spec.min_margin)
    if spec.max_pairs is not None:
        place = pl.int_range(pl.len()).over("problem_id")
        widest = pairs.sort("margin", descending=True, maintain_order=True)
        pairs = widest.filter(place < spec.max_pairs)
    first = pl.col("chosen").min().over("problem_id")  # any row of a problem orders the problems
    return pairs.sort(first, "chosen_rank", "rejected_rank").select("chosen", "rejected")


def _rank_solutions(solutions: pl.LazyFrame, spec: PairSpec) -> pl.LazyFrame:
    """Rank the different, scored solutions of each problem: best first and worst first, from 0.

    A solution that may not stand on a side has a null rank there. One that stopped on length has
    none: ``pairs`` do not say so, and whoever trains on them lets every solution end.
    """
    scored = (
        solutions.select("problem_id", "completions", "step_rewards", "outcome", "finish_reason")
        .with_row_index("row")
        .filter((pl.col("step_rewards").list.len() > 0) & (pl.col("finish_reason") == "stop"))
        .with_columns(
            text=pl.col("completions").list.join(""),
            reward=aggregate_expr("step_rewards", spec.aggregate),
        )
        .unique(subset=["problem_id", "text"], keep="first", maintain_order=True)
        .select("row", "problem_id", "outcome", "reward")
    )
    place, size = pl.int_range(pl.len()), pl.len()
    if not spec.require_outcome:
        ranked = scored.sort("reward", descending=True, maintain_order=True).with_columns(
            best=place.over("problem_id"), half=(size // 2).over("problem_id")
        )
        worst = size.over("problem_id") - 1 - pl.col("best")
        return ranked.with_columns(
            chosen_rank=pl.when(pl.col("best") < pl.col("half")).then(pl.col("best")),
            rejected_rank=pl.when(worst < pl.col("half")).then(worst),
        )
    correct = scored.filter(pl.col("outcome") == "correct").sort(
        "reward", descending=True, maintain_order=True
    )
    wrong = scored.filter(pl.col("outcome").is_in(MODEL_FAILURES)).sort(
        "reward", maintain_order=True
    )
    rank = place.over("problem_id")
    sides = (correct.with_columns(chosen_rank=rank), wrong.with_columns(rejected_rank=rank))
    return pl.concat(sides, how="diagonal")
