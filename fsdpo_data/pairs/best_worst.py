"""Pairs of the best and the worst solutions of a problem (paper, sections 3.4 and 4.1)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fsdpo_data.core.entities import MODEL_FAILURES
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.options import Option, Options
from fsdpo_data.steps.rewards import AGGREGATES, PAIR_AGGREGATE, REWARD_PRECISION, aggregate_expr

PAIR_PANEL = "Style full"  #: Heading in ``--help`` of the options of these pairs.

# Limits on the pairs of every style: their checks and their help.
MaxPairs = Annotated[
    int | None,
    Field(
        ge=1,
        description="Maximum number of pairs per problem. `full` prefers the largest margins, "
        "`step-dpo` the errors with the lowest rewards.",
    ),
]
AllowUnclosed = Annotated[
    bool,
    Field(
        description="Form pairs of solutions whose thinking never ends, too. By default they are "
        "left out, like truncated solutions."
    ),
]


class PairSpec(Options):
    """Options of the pair selection.

    ``top`` is T in the paper. Section 3.4 of the paper requires the outcome; section 4.1 ranks by
    reward alone. Then no solution is on both sides, and the chosen one has the higher reward.
    """

    top: Annotated[int, Field(ge=1), Option(panel=PAIR_PANEL)] = 4
    """Best and worst solutions per problem that form pairs: 4 give up to 16 pairs."""
    aggregate: Annotated[
        str, Option(panel=PAIR_PANEL, choices=AGGREGATES, default_text="by reward model")
    ] = PAIR_AGGREGATE
    """Function that turns step rewards into the reward of a solution. The default is `mean`, and
    `last` for rewards of an outcome reward model.
    """
    require_outcome: Annotated[bool, Option(panel=PAIR_PANEL)] = True
    """Pair the best correct with the worst incorrect solutions. Without it, pair the highest with
    the lowest rewards, regardless of the outcome.
    """
    max_pairs: MaxPairs = None
    min_margin: Annotated[float | None, Field(allow_inf_nan=False), Option(panel=PAIR_PANEL)] = None
    """Minimum reward of the chosen minus the rejected solution."""
    allow_unclosed: AllowUnclosed = False


def choose_pairs(solutions: pl.LazyFrame, spec: PairSpec) -> pl.LazyFrame:
    """Choose the pairs among the solutions of some problems.

    The choice is deterministic: solutions with equal rewards rank by their order in ``solutions``.

    Returns:
        Columns ``chosen`` and ``rejected``, which are row numbers in ``solutions``, in the order of
        the problems.
    """
    ranked = _rank_solutions(solutions, spec)
    pairs = (
        _select_side(ranked, "chosen", spec.top)
        .join(_select_side(ranked, "rejected", spec.top), on="problem_id")
        .with_columns(margin=pl.col("chosen_reward") - pl.col("rejected_reward"))
        .with_columns(tolerance=_margin_tolerance())
        .sort("chosen_rank", "rejected_rank")
    )
    if not spec.require_outcome:
        pairs = pairs.filter(pl.col("margin") > pl.col("tolerance"))
    if spec.min_margin is not None:
        pairs = pairs.filter(pl.col("margin") + pl.col("tolerance") >= spec.min_margin)
    if spec.max_pairs is not None:
        rank_in_problem = pl.int_range(pl.len()).over("problem_id")
        widest_first = pairs.sort("margin", descending=True, maintain_order=True)
        pairs = widest_first.filter(rank_in_problem < spec.max_pairs)
    # The solutions of a problem are adjacent, so any row number orders the problems.
    problem_order = pl.col("chosen").min().over("problem_id")
    return pairs.sort(problem_order, "chosen_rank", "rejected_rank").select("chosen", "rejected")


def _margin_tolerance() -> pl.Expr:
    """Return the rounding error of the margins; see :func:`~.steps.rewards.reward_tolerance`."""
    sizes = pl.col("chosen_reward", "rejected_reward").abs()
    return REWARD_PRECISION * pl.max_horizontal(1.0, sizes)


def _select_side(ranked: pl.LazyFrame, side: str, top: int) -> pl.LazyFrame:
    """Select the ``top`` solutions of each problem for one side."""
    return ranked.filter(pl.col(f"{side}_rank") < top).select(
        "problem_id",
        pl.col("row").alias(side),
        pl.col("reward").alias(f"{side}_reward"),
        f"{side}_rank",
    )


def _rank_solutions(solutions: pl.LazyFrame, spec: PairSpec) -> pl.LazyFrame:
    """Rank the distinct, scored solutions of each problem for both sides, from 0.

    ``chosen_rank`` 0 is the best solution, ``rejected_rank`` 0 the worst. The rank is null on a
    side that the solution may not take. Truncated solutions get no rank: ``pairs`` have no finish
    reason, so a trainer would teach the model to stop there. The same holds for solutions whose
    thinking never ends, without ``allow_unclosed``.
    """
    columns = ["problem_id", "completions", "step_rewards", "outcome", "finish_reason"]
    is_usable = (pl.col("step_rewards").list.len() > 0) & (pl.col("finish_reason") == "stop")
    if not spec.allow_unclosed:
        is_usable &= ~is_unclosed()
    scored = (
        solutions.select([*columns, "thinking_closed"])
        .with_row_index("row")
        .filter(is_usable)
        .with_columns(
            text=pl.col("completions").list.join(""),
            reward=aggregate_expr("step_rewards", spec.aggregate),
        )
        .unique(subset=["problem_id", "text"], keep="first", maintain_order=True)
        .select("row", "problem_id", "outcome", "reward")
    )
    if spec.require_outcome:
        return _rank_by_outcome(scored)
    return _rank_by_reward(scored)


def is_unclosed() -> pl.Expr:
    """Return the expression for solutions that stopped inside their thinking."""
    never_ends = pl.col("thinking_closed").eq(False).fill_null(False)
    return never_ends & (pl.col("finish_reason") == "stop")


def _rank_by_outcome(scored: pl.LazyFrame) -> pl.LazyFrame:
    """Rank correct solutions as chosen and incorrect ones as rejected."""
    rank = pl.int_range(pl.len()).over("problem_id")
    correct = scored.filter(pl.col("outcome") == "correct").sort(
        "reward", descending=True, maintain_order=True
    )
    incorrect = scored.filter(pl.col("outcome").is_in(MODEL_FAILURES)).sort(
        "reward", maintain_order=True
    )
    return pl.concat(
        [correct.with_columns(chosen_rank=rank), incorrect.with_columns(rejected_rank=rank)],
        how="diagonal",
    )


def _rank_by_reward(scored: pl.LazyFrame) -> pl.LazyFrame:
    """Rank the better half of the solutions as chosen, and the worse half as rejected."""
    ranked = scored.sort("reward", descending=True, maintain_order=True).with_columns(
        best_rank=pl.int_range(pl.len()).over("problem_id"),
        half=(pl.len() // 2).over("problem_id"),
    )
    best_rank = pl.col("best_rank")
    worst_rank = pl.len().over("problem_id") - 1 - best_rank
    return ranked.with_columns(
        chosen_rank=pl.when(best_rank < pl.col("half")).then(best_rank),
        rejected_rank=pl.when(worst_rank < pl.col("half")).then(worst_rank),
    )
