"""The pairs that step rewards would select, and the step weights of the paper's loss on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from fsdpo_bench.metrics.result_records import PairWeights, StepWeightDistance
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.pairs.best_worst import PairSpec, choose_pairs
from fsdpo_data.steps.rewards import aggregate, step_weights


def pair_weights(root: Path, problem_ids: Sequence[str], gammas: Sequence[float]) -> PairWeights:
    """Select the pairs of a dataset, and compare their step weights α with uniform weights.

    The pairs are those of ``fsdpo-data pair`` without options, so a problem with several rows
    in benchmarks gives its pairs once.

    Args:
        root: The dataset.
        problem_ids: The problems that count.
        gammas: Values of γ, the inverse temperature of the weights.
    """
    manifest = read_manifest(root)
    spec = PairSpec(aggregate=manifest.pair_aggregate)
    solutions = scan_rows("solutions", manifest.config_paths(root, "solutions"))
    solutions = solutions.filter(pl.col("problem_id").is_in(list(problem_ids)))
    pairs = collect_rows(choose_pairs(solutions, spec))
    rows = collect_rows(solutions.select("problem_id", "step_rewards"))
    rewards = rows["step_rewards"].to_list()
    margins = [
        aggregate(rewards[chosen], spec.aggregate) - aggregate(rewards[rejected], spec.aggregate)
        for chosen, rejected in pairs.iter_rows()
    ]
    sides = {
        "chosen": ([rewards[row] for row in pairs["chosen"]], 1),
        "rejected": ([rewards[row] for row in pairs["rejected"]], -1),
    }
    return PairWeights(
        top=spec.top,
        aggregate=spec.aggregate,
        pairs=pairs.height,
        problems=rows["problem_id"].gather(pairs["chosen"]).n_unique(),
        margin=math.fsum(margins) / len(margins) if margins else None,
        weights={
            f"{gamma:g}": {
                side: _weight_distance(side_rewards, gamma, sign)
                for side, (side_rewards, sign) in sides.items()
            }
            for gamma in gammas
        },
    )


def _weight_distance(
    rewards: Sequence[Sequence[float]], gamma: float, sign: int
) -> StepWeightDistance | None:
    """Compare step weights with equal weights; None without a side of several steps."""
    weights = [
        step_weights(side_rewards, gamma, sign) for side_rewards in rewards if len(side_rewards) > 1
    ]
    if not weights:
        return None
    n = len(weights)
    return StepWeightDistance(
        from_uniform=math.fsum(_distance_from_uniform(alphas) for alphas in weights) / n,
        max_over_uniform=math.fsum(len(alphas) * max(alphas) for alphas in weights) / n,
    )


def _distance_from_uniform(alphas: Sequence[float]) -> float:
    """Return the total variation distance of weights from equal weights, in [0, 1)."""
    return math.fsum(abs(alpha - 1 / len(alphas)) for alpha in alphas) / 2
