"""Selects the engine for a model, resolves the model, and loads samplers and scorers."""

import math
import os
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any, Self

from fsdpo_data.core.errors import FsdpoError, InputError, install_command
from fsdpo_data.engines.options import EngineOptions, SamplerOptions, ScorerOptions
from fsdpo_data.engines.ray import Placement, ReplicaPool, resolve_engine_on_cluster
from fsdpo_data.engines.registry import ENGINES, EngineRole, engine_error
from fsdpo_data.engines.samplers import LoadedSampler, Sampler
from fsdpo_data.engines.scorers import Scorer, prm_formats
from fsdpo_data.engines.scorers.critiques import CritiqueScorer
from fsdpo_data.engines.scorers.prm_formats import PrmFormat, PublishedPrm
from fsdpo_data.models import resolve
from fsdpo_data.models.checkpoints import load_config
from fsdpo_data.models.resolve import (
    ResolvedModel,
    ResolvedWeights,
    resolve_weights,
    served_weights,
)


@dataclass(frozen=True, slots=True)
class EngineSelection:
    """The engine that runs a model, with its options and its placement on a cluster."""

    engine: str  #: A name of :data:`~fsdpo_data.engines.registry.ENGINES`.
    options: EngineOptions  #: Options of the engine.
    placement: Placement | None = None  #: Replicas on a Ray cluster; None: run in this process.

    @classmethod
    def select(
        cls, options: EngineOptions, model_count: int = 1, role: EngineRole = "sampler"
    ) -> Self:
        """Select engine and placement for one model.

        Args:
            options: The user's options.
            model_count: Number of models that share the cluster.
            role: Whether the model samples or scores.

        Raises:
            InputError: if ``gpus_per_actor`` contradicts the parallelism of vLLM.
            UnavailableError: if the engine is not installed, or there is no cluster.
        """
        engine_args = options.engine_args
        data_parallel_size = engine_args.get("data_parallel_size", 1)
        if not options.uses_ray and data_parallel_size == 1:
            return cls(resolve_engine(options.engine, options.device, role), options)
        gpus_per_replica = _gpus_per_replica(options)
        if options.uses_ray:
            engine = resolve_engine_on_cluster(resolve_engine, options.device, role)
            replica_count = options.actors
        else:
            engine = resolve_engine(options.engine, options.device, role)
            replica_count = data_parallel_size
        if options.gpus_per_actor < 1 and engine == "vllm":
            memory = f"gpu_memory_utilization={0.9 * options.gpus_per_actor:g}"
            options = replace(options, engine_arg=(memory, *options.engine_arg))
        placement = Placement(
            actors=replica_count,
            gpus_per_replica=gpus_per_replica,
            model_count=model_count,
            gpu_fraction=options.gpus_per_actor,
        )
        return cls(engine, options, placement)

    @classmethod
    def select_for_scorer(
        cls, options: ScorerOptions, weights: ResolvedWeights, model_count: int = 1
    ) -> Self:
        """Select engine and placement for a reward model.

        A published PRM runs on vLLM only if the user names vLLM.

        Raises:
            InputError: if the user chose vLLM for a PRM format with a reference model.
            UnavailableError: if the engine is not installed, or there is no cluster.
        """
        if not isinstance(weights, PublishedPrm):
            return cls.select(options, model_count, "scorer")
        is_judge = weights.prm_format.is_judge
        selection = cls.select(options, model_count, "sampler" if is_judge else "scorer")
        if is_judge or selection.engine != "vllm":
            return selection
        if options.engine != "vllm":
            return replace(selection, engine="transformers")
        if weights.reference is not None:
            raise InputError(
                "vLLM cannot compute the log-ratios of the PRM format "
                f"{weights.prm_format.name}. Use `engine=transformers`.",
                field="engine",
                value="vllm",
            )
        return selection

    @property
    def spec_entry(self) -> dict[str, str]:
        """The engine as the spec of a run stores it: name, data type and API."""
        entry = {"name": self.engine, "dtype": self.options.dtype}
        if isinstance(self.options, SamplerOptions) and self.engine == "openai":
            entry |= {"api": self.options.server.api, "seeds": "not guaranteed"}
        return entry

    @property
    def batch_size(self) -> int:
        """Prompts per batch, over all replicas.

        On a cluster a batch holds four rounds of work, so that a slow replica does not finish last.

        Raises:
            InputError: if the cluster is too small for the requested replicas.
        """
        rounds = 4 * self.placement.replica_count if self.placement else 1
        return ENGINES[self.engine].batch_size * rounds

    def load(self, role: EngineRole, weights: ResolvedWeights) -> Any:
        """Load the model in this process, or prepare its replicas on the cluster.

        Raises:
            InputError: if the cluster is too small for the model.
            UnavailableError: if a library, a GPU or the weights are missing.
        """
        load = partial(_load, engine=self.engine, role=role, weights=weights, options=self.options)
        if self.placement is None:
            return load()
        return ReplicaPool(weights.ref, load, self.placement, ENGINES[self.engine].batch_size)


def _gpus_per_replica(options: EngineOptions) -> int | None:
    """Return the GPUs of a replica: 0 on CPUs, None for one GPU if the cluster has GPUs."""
    sizes = ("tensor_parallel_size", "pipeline_parallel_size")
    gpus: int = math.prod(options.engine_args.get(size, 1) for size in sizes)
    if options.device == "cpu":
        return 0
    if gpus == 1:
        return None
    if options.gpus_per_actor < 1:
        raise options.field_error(
            "gpus_per_actor",
            f"tensor and pipeline parallelism need {gpus} full GPUs per replica. Remove "
            "`gpus_per_actor`.",
        )
    return gpus


def resolve_engine(name: str, device: str, role: EngineRole) -> str:
    """Return the engine for a name: ``auto`` becomes vLLM if vLLM can run, else transformers.

    Only transformers takes ``device="cpu"``. Scorers on CPUs also run on transformers, which
    computes a prompt once for all its solutions.

    Raises:
        UnavailableError: if the packages of the engine are not installed.
    """
    if name == "auto":
        from fsdpo_data.engines.samplers.vllm import is_vllm_usable

        uses_vllm = device != "cpu" and is_vllm_usable(on_cpu=role == "sampler")
        name = "vllm" if uses_vllm else "transformers"
    engine = ENGINES[name]
    missing = [package for package in engine.packages if find_spec(package) is None]
    if missing:
        raise engine_error(
            name,
            f"the engine needs {' and '.join(missing)}, not installed here. Install with: "
            f"{install_command(engine.extra)}{engine.alternative}",
        )
    return name


def _load(
    *, engine: str, role: EngineRole, weights: ResolvedWeights, options: EngineOptions
) -> Any:
    # One tokenizer thread is enough for prompts, and avoids the warning about forks.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if isinstance(weights, PublishedPrm) and weights.prm_format.is_judge:
        return CritiqueScorer(weights, _load_sampler(engine, weights, options))
    if role == "sampler":
        return _load_sampler(engine, weights, options)
    return ENGINES[engine].load_class(role)(weights, options)


def _load_sampler(engine: str, weights: ResolvedWeights, options: EngineOptions) -> LoadedSampler:
    """Load a sampler, and add what its engine lacks: stop strings after the thinking, a limit."""
    entry = ENGINES[engine]
    api = options.server.api if isinstance(options, SamplerOptions) else ""
    sampler = entry.load_class("sampler")(weights, options)
    return LoadedSampler(sampler, can_continue=entry.can_continue(api))


def resolve_model(name: str, options: SamplerOptions, template: str | None = None) -> ResolvedModel:
    """Resolve the model that an engine runs, and its prompt template.

    Raises:
        InputError: if the model or the template does not exist.
        UnavailableError: if the Hub cannot be reached, or denies access.
    """
    if options.engine == "openai":
        return resolve.resolve_served(name, template, chat=options.server.api == "chat")
    return resolve.resolve(name, template)


def load_sampler(model: str, options: SamplerOptions) -> Sampler:
    """Load a sampler for a model: a short name, a directory or ``org/name[@revision]``.

    Raises:
        InputError: if the model does not exist.
        UnavailableError: if a library, a GPU or the weights are missing.
    """
    weights = served_weights(model) if options.engine == "openai" else resolve_weights(model)
    sampler: Sampler = EngineSelection.select(options).load("sampler", weights)
    return sampler


def load_scorer(prm: str | ResolvedWeights, options: ScorerOptions | None = None) -> Scorer:
    """Load a process reward model: a directory, ``org/name[@revision]`` or resolved weights.

    Raises:
        InputError: if the model is not a process reward model.
        UnavailableError: if a library, a GPU or the weights are missing.
    """
    options = options or ScorerOptions()
    weights = resolve_prm(prm, options) if isinstance(prm, str) else prm
    scorer: Scorer = EngineSelection.select_for_scorer(options, weights).load("scorer", weights)
    return scorer


def load_likelihood(policy: str, options: ScorerOptions | None = None) -> Scorer:
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


def resolve_prm(name: str, options: ScorerOptions | None = None) -> ResolvedWeights:
    """Resolve a process reward model and its PRM format.

    The options can name the format. Otherwise the name and the config of the model decide.

    Returns:
        A :class:`PublishedPrm`, or plain weights for a model that fsdpo trained.

    Raises:
        InputError: if the model or the format does not exist, or the format is not recognised.
        UnavailableError: if the model cannot be read.
    """
    options = options or ScorerOptions()
    try:
        weights = resolve_weights(name)
        config = load_config(weights)
    except FsdpoError as error:
        raise error.for_field("prm") from None
    if options.prm_format:
        prm_format: PrmFormat | None = prm_formats.get_prm_format(options.prm_format)
    elif options.reference and prm_formats.format_by_name(weights, config) is None:
        prm_format = prm_formats.PRM_FORMATS["implicit"]
    else:
        prm_format = prm_formats.detect_format(weights, config)
    if prm_format is None:
        return weights
    if prm_format.unsupported_reason:
        raise InputError(f"{prm_format.unsupported_reason}.", field="prm", value=name)
    reference = options.reference or prm_format.reference or None
    _check_reference(prm_format, reference)
    if options.beta is not None:
        prm_format = replace(prm_format, beta=options.beta)
    return PublishedPrm(
        weights.ref,
        weights.path,
        weights.commit,
        prm_format=prm_format,
        reference=resolve_weights(reference) if reference else None,
    )


def _check_reference(prm_format: PrmFormat, reference: str | None) -> None:
    """Raise InputError unless exactly the formats with log-ratios have a reference model."""
    needs_reference = prm_format.activation.startswith("log-ratio")
    if needs_reference and reference is None:
        message = (
            f"the PRM format {prm_format.name} needs a reference model. Add `reference=MODEL`."
        )
    elif reference is not None and not needs_reference:
        message = f"the PRM format {prm_format.name} uses no reference model. Remove `reference`."
    else:
        return
    raise InputError(message, field="reference", value=reference)
