"""Compare the choices by a reward model with the vote, and select the best one without bias.

Array suffixes: ``P`` problems.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fsdpo_bench.metrics.decoder_choices import DecoderChoices
from fsdpo_bench.metrics.result_records import SelectedStrategy
from fsdpo_bench.metrics.sample_arrays import Samples
from fsdpo_data.core.lazy import np
from fsdpo_data.core.statistics import MeanDifference, holm, mean_difference, mean_rate
from fsdpo_data.steps.rewards import DEFAULT_AGGREGATE


def ahead_of_vote(decoded: Mapping[str, DecoderChoices]) -> dict[str, MeanDifference]:
    """Return the difference of each choice by a reward model from the vote of as many samples.

    Empty if no problem counts.
    """
    votes = _votes(decoded)
    return {
        name: _difference(choices, votes[choices.setup.k])
        for name, choices in decoded.items()
        if choices.reward_model and choices.setup.k in votes and choices.samples.counts_P.any()
    }


def ahead_of_min(decoded: Mapping[str, DecoderChoices]) -> dict[str, MeanDifference]:
    """Return the difference of each other aggregate from ``min``, for decoders such as best-of-N.

    Empty if no problem counts.
    """
    compared = {
        choices.setup: choices
        for choices in decoded.values()
        if choices.setup.decoder.compares_aggregates
    }
    differences = {}
    for setup, choices in compared.items():
        base = compared.get(replace(setup, aggregate=DEFAULT_AGGREGATE))
        is_other = setup.aggregate != DEFAULT_AGGREGATE
        if base is not None and is_other and choices.samples.counts_P.any():
            differences[choices.name] = _difference(choices, base)
    return differences


def _votes(decoded: Mapping[str, DecoderChoices]) -> dict[int, DecoderChoices]:
    """Return the votes by the number of samples."""
    return {
        choices.setup.k: choices for choices in decoded.values() if choices.setup.decoder.is_vote
    }


def _difference(choices: DecoderChoices, base: DecoderChoices) -> MeanDifference:
    """Return the paired difference of two choices over the problems that count."""
    counts_P = choices.samples.counts_P
    return mean_difference(
        choices.correct_P[counts_P] - base.correct_P[counts_P], choices.samples.clusters(counts_P)
    )


class _Cell(NamedTuple):
    """The strategies of one reward model at one N."""

    model: str  #: Name of the reward model.
    size: int  #: N.
    strategies: Mapping[str, DecoderChoices]  #: By decoder and aggregate, such as ``bon:min``.


def select_strategies(
    decoded: Mapping[str, DecoderChoices],
) -> dict[str, dict[str, SelectedStrategy]]:
    """Select decoder and aggregate on each half of the problems, and measure the other half.

    The p-values are corrected for all reward models and all N above 1.

    Returns:
        The selection by reward model and N, where two or more strategies can be selected. Empty
        for a single problem, and for problems on a single base.
    """
    votes = _votes(decoded)
    selected: dict[str, dict[str, SelectedStrategy]] = {}
    for cell in _cells(decoded):
        samples = votes[cell.size].samples if cell.size in votes else None
        if samples is None or len(cell.strategies) < 2 or len(set(samples.counted_clusters)) < 2:
            continue
        strategy = _select_strategy(cell.strategies, votes[cell.size], samples)
        selected.setdefault(cell.model, {})[str(cell.size)] = strategy
    return _correct_p_values(selected)


def _cells(decoded: Mapping[str, DecoderChoices]) -> Iterator[_Cell]:
    """Yield the strategies of each reward model and N; the first of equally good ones is selected.

    Strategies that need no probabilities come first.
    """
    strategies: dict[tuple[str, int], dict[str, DecoderChoices]] = {}
    for choices in sorted(decoded.values(), key=_needs_probabilities):
        model, setup = choices.reward_model, choices.setup
        if model and setup.aggregate:
            name = f"{setup.decoder.name}:{setup.aggregate}"
            strategies.setdefault((model, setup.k), {})[name] = choices
    for (model, size), by_name in strategies.items():
        yield _Cell(model, size, by_name)


def _needs_probabilities(choices: DecoderChoices) -> bool:
    """Return whether a decoder needs rewards that are probabilities."""
    return choices.setup.decoder.needs == "probabilities"


def _select_strategy(
    strategies: Mapping[str, DecoderChoices], vote: DecoderChoices, samples: Samples
) -> SelectedStrategy:
    """Select the best strategy on each half of the problems for the other half."""
    counts_P = samples.counts_P
    fold_P = fold_numbers(samples.counted_clusters)
    values = {name: choices.correct_P[counts_P] for name, choices in strategies.items()}
    selected_P, names = select_by_fold(values, fold_P)
    clusters = samples.clusters(counts_P)
    return SelectedStrategy(
        accuracy=mean_rate(selected_P, clusters),
        ahead_of_vote=mean_difference(selected_P - vote.correct_P[counts_P], clusters),
        p_holm=None,
        strategies=names,
    )


def fold_numbers(clusters: Sequence[str]) -> np.ndarray:
    """Return the half of each problem, 0 or 1: a random split that depends only on the clusters."""
    order = sorted(set(clusters), key=lambda cluster: hashlib.sha256(cluster.encode()).hexdigest())
    fold_by_cluster = {cluster: rank % 2 for rank, cluster in enumerate(order)}
    return np.array([fold_by_cluster[cluster] for cluster in clusters])


def select_by_fold(
    values: Mapping[str, np.ndarray], fold_P: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """Return the values of the strategy that the other half selects, and the selected names."""
    selected_P = np.empty(len(fold_P))
    names = []
    for fold in (0, 1):
        is_other_P = fold_P != fold
        name = max(values, key=lambda name: values[name][is_other_P].mean())
        names.append(name)
        selected_P[~is_other_P] = values[name][~is_other_P]
    return selected_P, names


def _correct_p_values(
    selected: dict[str, dict[str, SelectedStrategy]],
) -> dict[str, dict[str, SelectedStrategy]]:
    """Return the selections with Holm's p-values, over all reward models and N above 1."""
    cells = [
        (model, size) for model, by_size in selected.items() for size in by_size if int(size) > 1
    ]
    differences = [selected[model][size].ahead_of_vote for model, size in cells]
    p_values = holm([difference.p for difference in differences])
    for (model, size), p_value in zip(cells, p_values, strict=True):
        strategy = selected[model][size]
        selected[model][size] = strategy.model_copy(update={"p_holm": p_value})
    return selected
