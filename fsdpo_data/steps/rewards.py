"""Labels of steps from outcomes, and step rewards to one number, always by a named aggregate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fsdpo_data.core.entities import GRADED_OUTCOMES, MODEL_FAILURES, Outcome
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import pl

#: ``mean`` builds the paper's pairs, ``min`` ranks its best-of-N; ``prod`` and ``last`` are those
#: of Lightman et al. (2023) and of outcome reward models.
AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda rewards: math.fsum(rewards) / len(rewards),
    "min": min,
    "prod": math.prod,
    "last": lambda rewards: rewards[-1],
}


def check_aggregate(name: str) -> str:
    """Return ``name``, or raise an InputError if there is no such aggregate."""
    if name not in AGGREGATES:
        raise InputError(f"expected one of {', '.join(AGGREGATES)}.", field="aggregate", value=name)
    return name


def aggregate(rewards: Sequence[float], name: str) -> float:
    """Return one number for the rewards of a solution, which has at least one step."""
    return float(AGGREGATES[check_aggregate(name)](rewards))


def aggregate_expr(column: str, name: str) -> pl.Expr:
    """Return the polars expression of an aggregate over a column of reward lists, in float64."""
    rewards = pl.col(column).cast(pl.List(pl.Float64))
    expressions = {
        "mean": rewards.list.mean(),
        "min": rewards.list.min(),
        "prod": rewards.list.eval(pl.element().product()).list.first(),
        "last": rewards.list.last(),
    }
    return expressions[check_aggregate(name)]


def step_weights(rewards: Sequence[float], gamma: float, sign: int) -> list[float]:
    """Return the paper's α of each step: softmax over ±γ·reward.

    ``sign`` is 1 for a preferred solution, -1 for a dispreferred one.
    """
    scores = [gamma * sign * reward for reward in rewards]
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / math.fsum(powers) for power in powers]


OUTCOME_LABELS = "outcome@1"  #: Name of the rule, in specs and manifests.


def outcome_labels(outcome: Outcome, n_steps: int) -> list[bool] | None:
    """Give every step the solution's outcome: y = 1 if a = a*, else 0.

    Returns:
        One label per step, or None where the failure is not the model's (a gold that cannot be
        parsed, a grader that ran out of time): such a solution is counted, never labelled 0.
    """
    return [outcome not in MODEL_FAILURES] * n_steps if outcome in GRADED_OUTCOMES else None
