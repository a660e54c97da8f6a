"""Loads samplers and scorers, in this process or as replicas on a cluster."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.errors import FsdpoError
from fsdpo_data.core.plugins import load_environment_plugins
from fsdpo_data.engines.choose_engine import EngineSelection, select_sampler, select_scorer
from fsdpo_data.engines.options import EngineOptions, SamplerOptions, ScorerOptions
from fsdpo_data.engines.ray import ReplicaPool
from fsdpo_data.engines.registry import SAMPLERS, SCORERS
from fsdpo_data.engines.samplers import LoadedSampler, Sampler
from fsdpo_data.engines.scorers import LoadedScorer, Scorer
from fsdpo_data.engines.scorers.critiques import CritiqueScorer
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm
from fsdpo_data.engines.weights import resolve_prm, resolve_sampler_weights
from fsdpo_data.models.resolve import ResolvedWeights, resolve_weights

if TYPE_CHECKING:
    from fsdpo_data.engines.scorers.likelihood import LikelihoodScorer


def load_selected_sampler(selection: EngineSelection, weights: ResolvedWeights) -> Sampler:
    """Load a sampler in this process, or prepare its replicas on the cluster.

    Raises:
        InputError: if the cluster is too small for the model.
        UnavailableError: if a library, a GPU or the weights are missing.
    """
    sampler: Sampler = _load_or_replicate(_load_sampler_here, selection, weights)
    return sampler


def load_selected_scorer(selection: EngineSelection, weights: ResolvedWeights) -> Scorer:
    """Load a scorer in this process, or prepare its replicas on the cluster.

    Raises:
        InputError: if the cluster is too small for the model.
        UnavailableError: if a library, a GPU or the weights are missing.
    """
    scorer: Scorer = _load_or_replicate(_load_scorer_here, selection, weights)
    return scorer


def _load_or_replicate(load_here: Any, selection: EngineSelection, weights: ResolvedWeights) -> Any:
    # Actors get the name of the engine. They load its plug-in, and find the entry by the name.
    load = partial(load_here, selection.entry.name, weights, selection.options)
    if selection.placement is None:
        return load()
    return ReplicaPool(weights.ref, load, selection.placement, selection.entry.batch_size)


def _load_sampler_here(
    engine: str, weights: ResolvedWeights, options: EngineOptions
) -> LoadedSampler:
    """Load a sampler, and add stop strings after the thinking."""
    _prepare_process()
    entry = SAMPLERS[engine]
    api = options.server.api if isinstance(options, SamplerOptions) else ""
    return LoadedSampler(entry.load(weights, options), can_continue=entry.can_continue(api))


def _load_scorer_here(
    engine: str, weights: ResolvedWeights, options: EngineOptions
) -> LoadedScorer:
    """Load a scorer; a judge scores with the critiques of a sampler."""
    _prepare_process()
    if isinstance(weights, PublishedPrm) and weights.prm_format.is_judge:
        sampler = _load_sampler_here(engine, weights, options)
        return LoadedScorer(CritiqueScorer(weights, sampler))
    return LoadedScorer(SCORERS[engine].load(weights, options))


def _prepare_process() -> None:
    load_environment_plugins()
    # One tokenizer thread is enough for prompts, and avoids the warning about forks.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def load_sampler(model: str, options: SamplerOptions) -> Sampler:
    """Load a sampler for a model: a short name, a directory or ``org/name[@revision]``.

    Raises:
        InputError: if the model does not exist, or the engine does not read an option that is set.
        UnavailableError: if a library, a GPU or the weights are missing.
    """
    options.check_model_options()
    weights = resolve_sampler_weights(model, options.engine)
    return load_selected_sampler(select_sampler(options), weights)


def load_scorer(prm: str | ResolvedWeights, options: ScorerOptions | None = None) -> Scorer:
    """Load a process reward model: a directory, ``org/name[@revision]`` or resolved weights.

    Raises:
        InputError: if the model is not a process reward model.
        UnavailableError: if a library, a GPU or the weights are missing.
    """
    options = options or ScorerOptions()
    weights = resolve_prm(prm, options) if isinstance(prm, str) else prm
    return load_selected_scorer(select_scorer(options, weights), weights)


def load_likelihood(policy: str, options: ScorerOptions | None = None) -> LikelihoodScorer:
    """Load a scorer that scores steps with a policy's own likelihood.

    ``policy`` names a model as in :func:`load_sampler`.

    Raises:
        InputError: if the model does not exist.
        UnavailableError: if a library, a GPU or the weights are missing.
    """
    from fsdpo_data.engines.scorers.likelihood import LikelihoodScorer

    try:
        weights = resolve_weights(policy)
    except FsdpoError as error:
        raise error.for_field("likelihood") from None
    return LikelihoodScorer(weights, options or ScorerOptions())
