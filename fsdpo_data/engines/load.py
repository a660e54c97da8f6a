"""Samplers and scorers by name: the engine and its place are picked first, weights load later."""

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
from fsdpo_data.engines.samplers import Sampler
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
    """What runs a model, and where."""

    engine: str  #: A name of :data:`~fsdpo_data.engines.registry.ENGINES`.
    options: EngineOptions  #: How it runs.
    placement: Placement | None = None  #: Where copies stand on a Ray cluster; None: just here.

    @classmethod
    def select(cls, options: EngineOptions, models: int = 1, role: EngineRole = "sampler") -> Self:
        """Pick engine and place for one of ``models`` that share the cluster.

        Raises:
            Unavailable: if the engine is not installed, or there is no cluster.
        """
        asked = options.engine_args
        copies = asked.get("data_parallel_size", 1)
        if not options.on_cluster and copies == 1:
            return cls(resolve_engine(options.engine, options.device, role), options)
        sizes = ("tensor_parallel_size", "pipeline_parallel_size")
        gpus: int | None = math.prod(asked.get(size, 1) for size in sizes)
        if options.device == "cpu":
            gpus = 0
        elif gpus == 1:
            gpus = None  # one, or none where the cluster has none
        elif options.gpus_per_actor < 1:
            raise options.field_error("gpus_per_actor", f"a copy needs {gpus} whole GPUs.")
        if options.on_cluster:
            engine, copies = (
                resolve_engine_on_cluster(resolve_engine, options.device, role),
                options.actors,
            )
        else:
            engine = resolve_engine(options.engine, options.device, role)
        if options.gpus_per_actor < 1 and engine == "vllm":
            memory = f"gpu_memory_utilization={0.9 * options.gpus_per_actor:g}"
            options = replace(options, engine_arg=(memory, *options.engine_arg))
        return cls(engine, options, Placement(copies, gpus, models, options.gpus_per_actor))

    @classmethod
    def select_for_scorer(
        cls, options: ScorerOptions, weights: ResolvedWeights, models: int = 1
    ) -> Self:
        """Pick engine and place for a reward model; heads of others want vLLM by name.

        Raises:
            InputError: if a log-ratio was asked of vLLM.
            Unavailable: if the engine is not installed, or there is no cluster.
        """
        judge = isinstance(weights, PublishedPrm) and weights.prm_format.is_judge
        host = cls.select(options, models, "sampler" if judge else "scorer")
        if not isinstance(weights, PublishedPrm) or judge or host.engine != "vllm":
            return host
        if options.engine != "vllm":
            return replace(host, engine="transformers")
        if weights.reference is not None:
            raise InputError(
                f"it reads no log-ratios; {weights.prm_format.name} wants `engine=transformers`.",
                field="engine",
                value="vllm",
            )
        return host

    @property
    def spec_entry(self) -> dict[str, str]:
        """Name and precision, as a spec says them, and what a server does not promise."""
        named = {"name": self.engine, "dtype": self.options.dtype}
        if isinstance(self.options, SamplerOptions) and self.engine == "openai":
            named |= {"api": self.options.api, "seeds": "not guaranteed"}
        return named

    @property
    def batch_size(self) -> int:
        """Prompts sampled at a time, all copies together: enough for a slow one not to be last.

        Raises:
            InputError: if the cluster has no room for as many as are asked for.
        """
        rounds = 4 * self.placement.replica_count if self.placement else 1
        return ENGINES[self.engine].batch_size * rounds

    def load(self, role: EngineRole, weights: ResolvedWeights) -> Any:
        """Load the model, here or as often as its placement says.

        Raises:
            InputError: if the cluster has no room for it.
            Unavailable: if a library, a GPU or the weights are not here.
        """
        load = partial(_load, self.engine, role, weights, self.options)
        if self.placement is None:
            return load()
        return ReplicaPool(weights.ref, load, self.placement, ENGINES[self.engine].batch_size)


def resolve_engine(name: str, device: str, role: EngineRole) -> str:
    """Resolve ``auto``: vLLM where it can run, else transformers, which alone takes ``cpu``.

    Scorers on CPUs run on transformers too, which computes a prompt once for all its solutions.

    Raises:
        Unavailable: if the engine asked for is not installed.
    """
    if name == "auto":
        from fsdpo_data.engines.samplers.vllm import is_vllm_usable

        runs = device != "cpu" and is_vllm_usable(on_cpu=role == "sampler")
        name = "vllm" if runs else "transformers"
    engine = ENGINES[name]
    missing = [package for package in engine.packages if find_spec(package) is None]
    if missing:
        raise engine_error(
            name,
            f"it needs {' and '.join(missing)}, not installed here. Install with: "
            f"{install_command(engine.extra)}{engine.alternative}",
        )
    return name


def _load(engine: str, role: EngineRole, weights: ResolvedWeights, options: EngineOptions) -> Any:
    # One tokenizer thread: prompts are few, and the warning about forks is for nobody.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if isinstance(weights, PublishedPrm) and weights.prm_format.is_judge:
        return CritiqueScorer(weights, ENGINES[engine].load_class("sampler")(weights, options))
    return ENGINES[engine].load_class(role)(weights, options)


def resolve_model(name: str, options: SamplerOptions, template: str | None = None) -> ResolvedModel:
    """Pin down the model that an engine runs, and how to ask it.

    Raises:
        InputError: if there is no such model or template.
        Unavailable: if the Hub cannot be reached, or refuses.
    """
    if options.engine == "openai":
        return resolve.resolve_served(name, template, chat=options.api == "chat")
    return resolve.resolve(name, template)


def load_sampler(model: str, options: SamplerOptions) -> Sampler:
    """Load a model that completes prompts: a short name, a directory or ``org/name[@revision]``.

    Raises:
        InputError: if there is no such model.
        Unavailable: if a library, a GPU or the weights are not here.
    """
    weights = served_weights(model) if options.engine == "openai" else resolve_weights(model)
    sampler: Sampler = EngineSelection.select(options).load("sampler", weights)
    return sampler


def load_scorer(prm: str | ResolvedWeights, options: ScorerOptions | None = None) -> Scorer:
    """Load a process reward model: a directory, ``org/name[@revision]``, or what it resolved to.

    Raises:
        InputError: if it is no process reward model.
        Unavailable: if a library, a GPU or the weights are not here.
    """
    options = options or ScorerOptions()
    weights = resolve_prm(prm, options) if isinstance(prm, str) else prm
    scorer: Scorer = EngineSelection.select_for_scorer(options, weights).load("scorer", weights)
    return scorer


def load_likelihood(policy: str, options: ScorerOptions | None = None) -> Scorer:
    """Load a policy, as :func:`load_sampler` takes it, to score with its own likelihood.

    Raises:
        InputError: if there is no such model.
        Unavailable: if a library, a GPU or the weights are not here.
    """
    from fsdpo_data.engines.scorers.likelihood import LikelihoodScorer

    try:
        weights = resolve_weights(policy)
    except FsdpoError as error:
        raise error.for_field("likelihood") from None
    return LikelihoodScorer(weights, options or ScorerOptions())


def resolve_prm(name: str, options: ScorerOptions | None = None) -> ResolvedWeights:
    """Pin down a process reward model, and how it is asked: as the options say, or as recognised.

    Raises:
        InputError: if there is no such model or convention, or it is not recognised.
        Unavailable: if it cannot be read.
    """
    options = options or ScorerOptions()
    try:
        weights = resolve_weights(name)
        config = load_config(weights)
    except FsdpoError as error:
        raise error.for_field("prm") from None
    if options.prm_format:
        asked: PrmFormat | None = prm_formats.get_prm_format(options.prm_format)
    elif options.reference and prm_formats.format_by_name(weights, config) is None:
        asked = prm_formats.PRM_FORMATS["implicit"]
    else:
        asked = prm_formats.detect_format(weights, config)
    if asked is None:
        return weights
    if asked.unsupported_reason:
        raise InputError(f"{asked.unsupported_reason}.", field="prm", value=name)
    reference = options.reference or asked.reference or None
    if asked.activation.startswith("log-ratio") != (reference is not None):
        raise InputError(
            f"{asked.name} is held against a reference: expected one."
            if reference is None
            else f"{asked.name} is held against none. Leave it out.",
            field="reference",
            value=reference,
        )
    if options.beta is not None:
        asked = replace(asked, beta=options.beta)
    held = resolve_weights(reference) if reference else None
    return PublishedPrm(weights.ref, weights.path, weights.commit, prm_format=asked, reference=held)
