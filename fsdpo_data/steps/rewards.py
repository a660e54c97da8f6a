"""Step labels from outcomes, named aggregates of step rewards, and step weights of the loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fsdpo_data.core.entities import GRADED_OUTCOMES, MODEL_FAILURES, Outcome
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import pl

#: Functions from step rewards to one reward, by name. The paper uses ``mean`` for pairs and ``min``
#: for best-of-N. ``prod`` is from Lightman et al. (2023); ``last`` suits outcome reward models.
AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda rewards: math.fsum(rewards) / len(rewards),
    "min": min,
    "prod": math.prod,
    "last": lambda rewards: rewards[-1],
}


def check_aggregate(name: str) -> str:
    """Return ``name`` if it is a known aggregate.

    Raises:
        InputError: if there is no such aggregate.
    """
    if name not in AGGREGATES:
        raise InputError(f"expected one of {', '.join(AGGREGATES)}.", field="aggregate", value=name)
    return name


def aggregate(rewards: Sequence[float], name: str) -> float:
    """Aggregate the step rewards of a solution, which has at least one step."""
    return float(AGGREGATES[check_aggregate(name)](rewards))


def aggregate_expr(column: str, name: str) -> pl.Expr:
    """Return a polars expression that aggregates a column of reward lists in float64."""
    rewards = pl.col(column).cast(pl.List(pl.Float64))
    expressions = {
        "mean": rewards.list.mean(),
        "min": rewards.list.min(),
        "prod": rewards.list.eval(pl.element().product()).list.first(),
        "last": rewards.list.last(),
    }
    return expressions[check_aggregate(name)]


def step_weights(rewards: Sequence[float], gamma: float, sign: int) -> list[float]:
    """Return the weight α of each step in the paper's loss: the softmax of ±γ·reward.

    Args:
        rewards: One reward per step.
        gamma: Inverse temperature γ.
        sign: 1 for the chosen solution, -1 for the rejected one.
    """
    scores = [gamma * sign * reward for reward in rewards]
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / math.fsum(powers) for power in powers]


OUTCOME_LABELS = "outcome@1"  #: Name of the labelling rule in specs and manifests.


def outcome_labels(outcome: Outcome, n_steps: int) -> list[bool] | None:
    """Label every step with the outcome of the solution: True for a correct answer.

    Returns:
        One label per step. None if grading failed for another reason than the model, e.g. an
        unreadable gold answer or a timeout. The manifest counts such solutions.
    """
    if outcome not in GRADED_OUTCOMES:
        return None
    return [outcome not in MODEL_FAILURES] * n_steps
