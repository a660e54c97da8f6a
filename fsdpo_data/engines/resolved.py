"""Models with their engines, resolved and checked, and loaded when they are needed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fsdpo_data.core.identity import EngineRef, ModelRef
from fsdpo_data.core.sampling import UNKNOWN
from fsdpo_data.engines.choose_engine import (
    select_sampler,
    select_sampler_with_scorer,
    select_scorer,
)
from fsdpo_data.engines.load import load_selected_sampler, load_selected_scorer
from fsdpo_data.engines.options import DEFAULT_MODEL, ReplayOptions, SamplerOptions, ScorerOptions
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.engines.scorers import Scorer
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm, ScoreSettings
from fsdpo_data.engines.scorers.trained_prm import TrainedPrm
from fsdpo_data.engines.weights import digest_recording, resolve_model, resolve_prm
from fsdpo_data.models.resolve import ResolvedModel, ResolvedWeights


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
        batch_size=engine.batch_size or selection.batch_size,
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
