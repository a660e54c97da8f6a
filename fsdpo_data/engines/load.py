"""Models with their engines: resolved and checked, and loaded here or as replicas on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.errors import FsdpoError
from fsdpo_data.core.identity import EngineRef, ModelRef
from fsdpo_data.core.plugins import load_environment_plugins
from fsdpo_data.core.sampling import UNKNOWN
from fsdpo_data.engines.choose_engine import (
    EngineSelection,
    select_sampler,
    select_sampler_with_scorer,
    select_scorer,
)
from fsdpo_data.engines.options import (
    DEFAULT_MODEL,
    EngineOptions,
    ReplayOptions,
    SamplerOptions,
    ScorerOptions,
)
from fsdpo_data.engines.ray import ReplicaPool
from fsdpo_data.engines.registry import SAMPLERS, SCORERS
from fsdpo_data.engines.samplers import LoadedSampler, Sampler
from fsdpo_data.engines.scorers import LoadedScorer, Scorer
from fsdpo_data.engines.scorers.critiques import CritiqueScorer
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm, ScoreSettings
from fsdpo_data.engines.scorers.trained_prm import TrainedPrm
from fsdpo_data.engines.weights import (
    digest_recording,
    resolve_model,
    resolve_prm,
    resolve_sampler_weights,
)
from fsdpo_data.models.resolve import ResolvedModel, ResolvedWeights, resolve_weights

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


@dataclass(frozen=True, slots=True)
class ResolvedPolicy:
    """The model that writes solutions, with its engine."""

    model: ResolvedModel  #: The model of the options.
    #: The model that wrote the solutions. In a recording, it may be another model.
    author: ModelRef
    #: The engine. It has the digest of a recording if the revision of the author is unknown.
    engine: EngineRef
    #: Sampling settings that are unknown because a replay does not state them.
    unknown_fields: tuple[str, ...]
    batch_size: int  #: Prompts per call of the sampler.
    make_sampler: Callable[[], Sampler]  #: Loads the sampler.
    recording: str | None = None  #: Digest of the recording that is replayed; None for a model.

    @property
    def author_path(self) -> str:
        """The directory or the name of the model that wrote the solutions."""
        return self.model.path if self.author == self.model.ref else self.author.name


def resolve_policy(
    options: ReplayOptions, engine: SamplerOptions, template: str | None, *, has_scorer: bool
) -> ResolvedPolicy:
    """Resolve the model of a command that samples solutions.

    Args:
        options: Options of the command.
        engine: Options of the engine.
        template: Name of the prompt template; None for the template of the model.
        has_scorer: Whether a reward model runs next to the policy.

    Raises:
        InputError: if the model or the template does not exist.
        UnavailableError: if an engine is not installed, or the Hub cannot be reached.
    """
    model = resolve_model(options.model or DEFAULT_MODEL, engine, template)
    selection = select_sampler_with_scorer(engine) if has_scorer else select_sampler(engine)
    recording = digest_recording(engine)
    # A recording of a known model gives the same solutions as the model itself, so its manifest is
    # that of sampling. Otherwise the digest separates the recordings of different models.
    described_recording = None if _is_written_by_model(options) else recording
    return ResolvedPolicy(
        model=model,
        author=_solution_author(options, model.ref),
        engine=selection.ref.model_copy(update={"recording": described_recording}),
        unknown_fields=options.unknown_fields,
        batch_size=selection.batch_size,
        make_sampler=partial(load_selected_sampler, selection, model),
        recording=recording,
    )


def _solution_author(options: ReplayOptions, model: ModelRef) -> ModelRef:
    """Return the model that wrote the solutions.

    Without a named model, the author of a recording is ``model_name`` with an unknown revision.
    """
    if _is_written_by_model(options):
        return model
    return ModelRef(options.model_name or UNKNOWN, UNKNOWN)


def _is_written_by_model(options: ReplayOptions) -> bool:
    """Return whether the model of the options wrote the solutions."""
    is_named = options.model is not None and options.model_name is None
    return is_named or not options.is_replay


@dataclass(frozen=True, slots=True)
class ResolvedRewardModel:
    """A process reward model with its engine."""

    weights: ResolvedWeights  #: The weights, with the PRM format of a published reward model.
    engine: EngineRef  #: The engine.
    make_scorer: Callable[[], Scorer]  #: Loads the scorer.

    @property
    def settings(self) -> ScoreSettings:
        """Everything that determines the step rewards."""
        weights = self.weights
        settings = ScoreSettings(prm=weights.ref, engine=self.engine)
        if isinstance(weights, TrainedPrm):
            settings.last_step_only = weights.last_step_only
        elif isinstance(weights, PublishedPrm):
            settings.prm_format = weights.prm_format.ref
            settings.reference = weights.reference.ref if weights.reference else None
        return settings

    @property
    def format_evidence(self) -> str:
        """How the PRM format was recognised; empty without a PRM format."""
        return self.weights.format_evidence if isinstance(self.weights, PublishedPrm) else ""


def resolve_reward_model(
    prm: str, options: ScorerOptions, *, model_count: int = 1
) -> ResolvedRewardModel:
    """Resolve a process reward model.

    Args:
        prm: A directory, or ``org/name[@revision]``.
        options: Options of its engine.
        model_count: Number of models that share a cluster.

    Raises:
        InputError: if it is not a process reward model.
        UnavailableError: if its engine is not installed, or the model cannot be read.
    """
    weights = resolve_prm(prm, options)
    selection = select_scorer(options, weights, model_count=model_count)
    return ResolvedRewardModel(
        weights=weights,
        engine=selection.ref,
        make_scorer=partial(load_selected_scorer, selection, weights),
    )
