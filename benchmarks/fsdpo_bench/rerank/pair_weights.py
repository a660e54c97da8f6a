"""The pairs that step rewards would select, and the step weights of the paper's loss on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.pairs.best_worst import PairSpec, choose_pairs
from fsdpo_data.steps.rewards import aggregate, step_weights


def pair_weights(
    root: Path, problem_ids: Sequence[str], spec: PairSpec, gammas: Sequence[float]
) -> dict[str, Any]:
    """Select the pairs of a dataset, and compare their step weights α with uniform weights.

    Args:
        root: The dataset.
        problem_ids: The problems that count.
        spec: Options of the pair selection.
        gammas: Values of γ, the inverse temperature of the weights.

    Returns:
        A dictionary. ``pairs`` and ``problems`` count the pairs and their problems. ``margin`` has
        the mean and quantiles. ``weights`` has these means by γ and side. ``from_uniform`` is the
        total variation distance of the weights from 1/K. ``max_over_uniform`` is K times the
        largest weight. ``effective_steps`` is the exponential of the entropy, divided by K. Only
        sides with at least two steps count; ``several_steps`` is their fraction.
    """
    manifest = read_manifest(root)
    solutions = scan_rows("solutions", manifest.config_paths(root, "solutions"))
    solutions = solutions.filter(pl.col("problem_id").is_in(list(problem_ids)))
    pairs = collect_rows(choose_pairs(solutions, spec))
    rows = collect_rows(solutions.select("problem_id", "step_rewards"))
    rewards = rows["step_rewards"].to_list()
    margins = sorted(
        aggregate(rewards[chosen], spec.aggregate) - aggregate(rewards[rejected], spec.aggregate)
        for chosen, rejected in pairs.iter_rows()
    )
    sides = {
        "chosen": ([rewards[row] for row in pairs["chosen"]], 1),
        "rejected": ([rewards[row] for row in pairs["rejected"]], -1),
    }
    return {
        "pairs": pairs.height,
        "problems": rows["problem_id"].gather(pairs["chosen"]).n_unique(),
        "margin": _margin_summary(margins),
        "weights": {
            f"{gamma:g}": {
                side: _weight_summary(side_rewards, gamma, sign)
                for side, (side_rewards, sign) in sides.items()
            }
            for gamma in gammas
        },
    }


def _margin_summary(margins: Sequence[float]) -> dict[str, float] | None:
    """Return the mean, the quantiles and the share of negative values; None without margins."""
    if not margins:
        return None
    return {
        "mean": math.fsum(margins) / len(margins),
        "p10": margins[len(margins) // 10],
        "median": margins[len(margins) // 2],
        "p90": margins[len(margins) * 9 // 10],
        "negative": sum(margin < 0 for margin in margins) / len(margins),
    }


def _weight_summary(
    rewards: Sequence[Sequence[float]], gamma: float, sign: int
) -> dict[str, float] | None:
    """Compare step weights with uniform weights; None without a side of several steps."""
    weights = [
        step_weights(side_rewards, gamma, sign) for side_rewards in rewards if len(side_rewards) > 1
    ]
    if not weights:
        return None
    n = len(weights)
    return {
        "several_steps": n / len(rewards),
        "from_uniform": math.fsum(_distance_from_uniform(alphas) for alphas in weights) / n,
        "max_over_uniform": math.fsum(len(alphas) * max(alphas) for alphas in weights) / n,
        "effective_steps": math.fsum(_effective_share(alphas) for alphas in weights) / n,
    }


def _distance_from_uniform(alphas: Sequence[float]) -> float:
    """Return the total variation distance of weights from equal weights, in [0, 1)."""
    return math.fsum(abs(alpha - 1 / len(alphas)) for alpha in alphas) / 2


def _effective_share(alphas: Sequence[float]) -> float:
    """Return the exponential of the entropy of weights, divided by their number."""
    entropy = -math.fsum(alpha * math.log(alpha) for alpha in alphas if alpha > 0)
    return math.exp(entropy) / len(alphas)
