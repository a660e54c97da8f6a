"""Step labels from outcomes, named aggregates of step rewards, and step weights of the loss."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fsdpo_data.core.entities import GRADED_OUTCOMES, MODEL_FAILURES, Outcome
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import np, pl
from fsdpo_data.core.registry import Registry

_AGGREGATE_NAME = re.compile(r"[A-Za-z][\w.-]*")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function from the step rewards of a solution to one reward.

    Raises:
        InputError: if the name has other characters than letters, digits, ``.``, ``-`` and ``_``.
    """

    name: str  #: Name on the command line and in files.
    compute: Callable[[Sequence[float]], float]  #: Aggregates the rewards of at least one step.
    #: Aggregates a polars column of float64 lists. If None, ``compute`` runs for each list, which
    #: is slower.
    make_expr: Callable[[pl.Expr], pl.Expr] | None = None

    def __post_init__(self) -> None:
        if not _AGGREGATE_NAME.fullmatch(self.name):
            raise InputError(
                "expected letters, digits, `.`, `-` and `_`, because names of decoders contain the "
                "name. Rename the aggregate.",
                field="aggregate",
                value=self.name,
            )

    def to_expr(self, rewards: pl.Expr) -> pl.Expr:
        """Return the expression for a column of float64 lists; null for missing or empty lists."""
        # The product of no numbers is 1, and a solution without steps has no reward.
        with_steps = pl.when(rewards.list.len() > 0).then(rewards)
        if self.make_expr is not None:
            return self.make_expr(with_steps)
        return with_steps.map_elements(self._compute_series, return_dtype=pl.Float64)

    def _compute_series(self, rewards: pl.Series) -> float:
        return float(self.compute(rewards.to_list()))


#: Aggregates by name. The paper uses ``mean`` for pairs and ``min`` for best-of-N. ``prod`` is from
#: Lightman et al. (2023); ``last`` suits outcome reward models.
AGGREGATES = Registry("aggregate", Aggregate, group="fsdpo.aggregates")
for _aggregate in (
    Aggregate(
        "mean",
        lambda rewards: math.fsum(rewards) / len(rewards),
        lambda rewards: rewards.list.mean(),
    ),
    Aggregate("min", min, lambda rewards: rewards.list.min()),
    Aggregate(
        "prod",
        math.prod,
        lambda rewards: rewards.list.eval(pl.element().product()).list.first(),
    ),
    Aggregate("last", lambda rewards: rewards[-1], lambda rewards: rewards.list.last()),
):
    AGGREGATES.register(_aggregate)
#: The aggregate of decoders that choose among samples, if the PRM format names no other one.
DEFAULT_AGGREGATE = "min"
PAIR_AGGREGATE = "mean"  #: The aggregate that ranks solutions for pairs.
OUTCOME_AGGREGATE = "last"  #: The aggregate for outcome reward models, in place of both.
REWARD_PRECISION = 1e-6  #: Precision of aggregated rewards, whose steps are stored in 32 bits.
DEFAULT_GAMMA = 0.5  #: Inverse temperature γ of the step weights (section 4.1 of the paper).


def default_aggregate(*, is_outcome_model: bool, format_aggregate: str | None = None) -> str:
    """Return the aggregate of decoders that choose among samples, if the user names none.

    Args:
        is_outcome_model: Whether only the reward of the last step is trained.
        format_aggregate: The aggregate of the PRM format; None without a format.
    """
    if is_outcome_model:
        return OUTCOME_AGGREGATE
    return format_aggregate or DEFAULT_AGGREGATE


def default_pair_aggregate(*, is_outcome_model: bool) -> str:
    """Return the aggregate that ranks solutions for pairs, if the user names none."""
    return OUTCOME_AGGREGATE if is_outcome_model else PAIR_AGGREGATE


def check_aggregate(name: str) -> str:
    """Return ``name`` if it is a known aggregate.

    Raises:
        InputError: if there is no such aggregate.
    """
    return AGGREGATES.find(name).name


def aggregate(rewards: Sequence[float], name: str) -> float:
    """Aggregate the step rewards of a solution.

    Raises:
        ValueError: if the solution has no steps, and so no reward.
    """
    if not rewards:
        raise ValueError("a solution without steps has no reward")
    return float(AGGREGATES.find(name).compute(rewards))


def aggregate_expr(column: str, name: str) -> pl.Expr:
    """Return a polars expression that aggregates a column of reward lists in float64.

    The reward of a solution without steps is null, as that of an unscored one.
    """
    return AGGREGATES.find(name).to_expr(pl.col(column).cast(pl.List(pl.Float64)))


def stored_reward(reward: float) -> float:
    """Return a reward as ``step_rewards`` stores it, in 32 bits: 0.7 becomes 0.699999988.

    Bounds of rewards are rounded in the same way, so that they include rewards that equal them.
    """
    return ctypes.c_float(reward).value


def reward_tolerance(reward: float) -> float:
    """Return the difference that rounding makes between two aggregates of rewards.

    The aggregate of rewards in 32 bits may be beside its exact value: the mean of 0.6 and 0.8 is
    0.700000018. Bounds of aggregates and of their differences include values within the tolerance.
    """
    return REWARD_PRECISION * max(1.0, abs(reward))


def step_weights(rewards: Sequence[float], gamma: float, sign: int) -> list[float]:
    """Return the weight α of each step in the paper's loss: the softmax of ±γ·reward.

    Args:
        rewards: One reward per step.
        gamma: Inverse temperature γ.
        sign: 1 for the chosen solution, -1 for the rejected one.
    """
    weights: list[float] = joined_step_weights(
        np.array(rewards), np.array([len(rewards)]), gamma, sign
    ).tolist()
    return weights


def joined_step_weights(
    rewards: np.ndarray, n_steps: np.ndarray, gamma: float, sign: int
) -> np.ndarray:
    """Return the :func:`step_weights` of several solutions, whose rewards follow each other.

    Args:
        rewards: The rewards of the steps of all solutions.
        n_steps: The number of steps of each solution, at least 1.
        gamma: Inverse temperature γ.
        sign: 1 for chosen solutions, -1 for rejected ones.
    """
    if not len(rewards):
        return rewards
    first_steps = n_steps.cumsum(dtype=np.int64) - n_steps
    scores = gamma * sign * rewards
    powers = np.exp(scores - np.maximum.reduceat(scores, first_steps).repeat(n_steps))
    weights: np.ndarray = powers / np.add.reduceat(powers, first_steps).repeat(n_steps)
    return weights


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
