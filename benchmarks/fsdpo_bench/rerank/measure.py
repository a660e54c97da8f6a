"""The measurements of ``fsdpo-bench rerank`` on recorded samples with step rewards."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fsdpo_bench.metrics.choices import estimate_best_of_n, estimate_vote, pass_at_k
from fsdpo_bench.rerank.calibration import calibration
from fsdpo_bench.rerank.options import RerankOptions
from fsdpo_bench.rerank.pair_weights import pair_weights
from fsdpo_bench.rerank.pool import Pool, ScoredPool, load_pool
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.statistics import holm, mean_difference, mean_rate, ranking_auc
from fsdpo_data.exchange.response_formats import question_key
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.problems.load import load_problems
from fsdpo_data.steps.rewards import AGGREGATES, DEFAULT_AGGREGATE, check_aggregate

#: Names of the strategies to choose among samples with rewards.
BEST_OF_N = "best-of-n"
WEIGHTED_VOTE = "weighted-vote"


def measure_reranking(options: RerankOptions, progress: Progress) -> dict[str, Any]:
    """Return all measurements of the options as plain JSON.

    Raises:
        InputError: if the datasets cannot be compared, or have fewer samples than N.
        SchemaError: if a dataset is not sealed, or its files were changed.
    """
    if not options.data:
        raise InputError("nothing to measure: give at least one dataset.", field="data")
    aggregates = [check_aggregate(name) for name in options.aggregate or AGGREGATES]
    progress.phase("read", 1)
    pool = load_pool(options.data, aggregates, _question_keys(options.problems))
    sizes = _subset_sizes(options.k, pool.n_samples)
    estimate_votes = partial(
        estimate_vote,
        pool.class_PM,
        pool.correct_PM,
        sizes,
        max_subsets=options.subsets,
        seed=options.seed,
    )
    progress.phase("measure", 1 + len(pool.models))
    vote_PS = estimate_votes()
    result: dict[str, Any] = {
        "problems": len(pool.problem_ids),
        "samples_per_problem": pool.n_samples,
        "mixed_problems": int((pool.correct_PM.any(axis=1) & ~pool.correct_PM.all(axis=1)).sum()),
        "left_out": pool.left_out,
        "n": sizes,
        "sample": asdict(mean_rate(pool.correct_PM.mean(axis=1))),
        "vote": _rates(vote_PS, sizes),
        "pass": _rates(_pass_at_n(pool, sizes), sizes),
        "models": {},
    }
    progress.advance(1)
    folds = _fold_numbers(pool.problem_ids)
    gammas = options.gamma or (0.5, 2, 8)
    for model in pool.models:
        accuracies = _model_accuracies(pool, model, estimate_votes, sizes)
        result["models"][model.name] = {
            "accuracy": {
                strategy: {
                    aggregate: _rates(values_PS, sizes)
                    for aggregate, values_PS in by_aggregate.items()
                }
                for strategy, by_aggregate in accuracies.items()
            },
            "ahead_of_vote": {
                strategy: {
                    aggregate: _differences(values_PS - vote_PS, sizes)
                    for aggregate, values_PS in by_aggregate.items()
                }
                for strategy, by_aggregate in accuracies.items()
            },
            "ahead_of_min": _ahead_of_min(accuracies[BEST_OF_N], sizes),
            "selected": _select_and_measure(accuracies, vote_PS, sizes, folds),
            "ranking_auc": _aucs(pool, model),
            "calibration": {
                aggregate: calibration(rewards_PM, pool.correct_PM)
                for aggregate, rewards_PM in model.rewards_PM.items()
            }
            if model.are_probabilities
            else None,
            "pairs": pair_weights(model.root, pool.problem_ids, PairSpec(), gammas),
        }
        progress.advance(1)
    _correct_p_values(result)
    return result


def _question_keys(file: Path | None) -> frozenset[str] | None:
    """Return the questions of a file of problems, without white space; None without a file."""
    if file is None:
        return None
    problems = load_problems([str(file)]).problems
    return frozenset(question_key(problem.question) for problem in problems)


def _subset_sizes(sizes: Sequence[int], n_samples: int) -> list[int]:
    """Return the values of N, or powers of 2 and all samples."""
    if not sizes:
        powers = [2**exponent for exponent in range(n_samples.bit_length())]
        return sorted({*powers, n_samples})
    if max(sizes) > n_samples:
        raise InputError(
            f"the problems have {n_samples} samples each. Give smaller values.",
            field="k",
            value=max(sizes),
        )
    return sorted(set(sizes))


def _rates(values_PS: np.ndarray, sizes: Sequence[int]) -> dict[str, Any]:
    """Return the mean accuracy of each column with its interval, by N."""
    return {str(size): asdict(mean_rate(values_PS[:, i])) for i, size in enumerate(sizes)}


def _differences(values_PS: np.ndarray, sizes: Sequence[int]) -> dict[str, Any]:
    """Return the mean difference of each column with its interval and p-value, by N."""
    return {str(size): asdict(mean_difference(values_PS[:, i])) for i, size in enumerate(sizes)}


def _pass_at_n(pool: Pool, sizes: Sequence[int]) -> np.ndarray:
    """Return pass@N for each problem, of shape (P, S)."""
    n_correct_P = pool.correct_PM.sum(axis=1).tolist()
    return np.array(
        [[pass_at_k(pool.n_samples, count, size) for size in sizes] for count in n_correct_P]
    )


def _model_accuracies(
    pool: Pool, model: ScoredPool, estimate_votes: Callable[..., np.ndarray], sizes: Sequence[int]
) -> dict[str, dict[str, np.ndarray]]:
    """Return the accuracies of each problem by strategy and aggregate; votes need probabilities."""
    accuracies: dict[str, dict[str, np.ndarray]] = {
        BEST_OF_N: {
            aggregate: estimate_best_of_n(rewards_PM, pool.correct_PM, sizes)
            for aggregate, rewards_PM in model.rewards_PM.items()
        }
    }
    if model.are_probabilities:
        accuracies[WEIGHTED_VOTE] = {
            aggregate: estimate_votes(rewards_PM)
            for aggregate, rewards_PM in model.rewards_PM.items()
        }
    return accuracies


def _ahead_of_min(by_aggregate: Mapping[str, np.ndarray], sizes: Sequence[int]) -> dict[str, Any]:
    """Return how far best-of-N by each other aggregate is ahead of best-of-N by ``min``."""
    if DEFAULT_AGGREGATE not in by_aggregate:
        return {}
    base_PS = by_aggregate[DEFAULT_AGGREGATE]
    return {
        aggregate: _differences(values_PS - base_PS, sizes)
        for aggregate, values_PS in by_aggregate.items()
        if aggregate != DEFAULT_AGGREGATE
    }


def _fold_numbers(problem_ids: Sequence[str]) -> np.ndarray:
    """Return the fold of each problem, 0 or 1: a random split that depends only on the ids."""
    digests = np.array([hashlib.sha256(key.encode()).hexdigest() for key in problem_ids])
    return digests.argsort().argsort() % 2


def _select_and_measure(
    accuracies: Mapping[str, Mapping[str, np.ndarray]],
    vote_PS: np.ndarray,
    sizes: Sequence[int],
    folds: np.ndarray,
) -> dict[str, Any]:
    """Select a strategy and an aggregate on each fold of the problems, for the other fold.

    Returns:
        By N: the accuracy, the difference from the vote, and the names that each fold selected.
        Empty for a single problem.
    """
    if len(folds) < 2:
        return {}
    options = [
        (f"{strategy}:{aggregate}", values_PS)
        for strategy, by_aggregate in accuracies.items()
        for aggregate, values_PS in by_aggregate.items()
    ]
    selected: dict[str, Any] = {}
    for index, size in enumerate(sizes):
        values_P = np.empty(len(folds))
        names = []
        for fold in (0, 1):
            is_other_fold = folds != fold
            means = [values_PS[is_other_fold, index].mean() for _, values_PS in options]
            name, values_PS = options[int(np.argmax(means))]
            names.append(name)
            values_P[~is_other_fold] = values_PS[~is_other_fold, index]
        selected[str(size)] = {
            "accuracy": asdict(mean_rate(values_P)),
            "ahead_of_vote": asdict(mean_difference(values_P - vote_PS[:, index])),
            "strategies": names,
        }
    return selected


def _aucs(pool: Pool, model: ScoredPool) -> dict[str, Any]:
    """Return the ranking AUC within problems, by aggregate."""
    problem_numbers = np.repeat(np.arange(len(pool.problem_ids)), pool.n_samples)
    labels = pool.correct_PM.ravel()
    aucs = {}
    for aggregate, rewards_PM in model.rewards_PM.items():
        rewards = rewards_PM.ravel()
        is_scored = ~np.isnan(rewards)
        auc = ranking_auc(
            problem_numbers[is_scored].tolist(), rewards[is_scored], labels[is_scored]
        )
        aucs[aggregate] = asdict(auc)
    return aucs


def _correct_p_values(result: dict[str, Any]) -> None:
    """Add Holm's p-values to the selected strategies, over all models and N above 1."""
    cells = [
        cell["ahead_of_vote"]
        for model in result["models"].values()
        for size, cell in model["selected"].items()
        if int(size) > 1
    ]
    for cell, p_value in zip(cells, holm([cell["p"] for cell in cells]), strict=True):
        cell["p_holm"] = p_value
