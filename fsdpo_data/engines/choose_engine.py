"""Selects the engine of a model, and its placement on a cluster."""

import math
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Self

from fsdpo_data.core.errors import InputError, install_command
from fsdpo_data.core.identity import EngineRef
from fsdpo_data.core.registry import Registry
from fsdpo_data.engines.options import EngineOptions, SamplerOptions, ScorerOptions
from fsdpo_data.engines.ray import Placement, resolve_engine_on_cluster
from fsdpo_data.engines.registry import (
    SAMPLERS,
    SCORERS,
    EngineEntry,
    EngineRole,
    SamplerEntry,
    ScorerEntry,
    choose_engine,
    engine_error,
    fallback_engine,
)
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm
from fsdpo_data.models.resolve import ResolvedWeights

#: Fraction of a GPU's memory that vLLM takes for the policy if a reward model runs on the same GPU.
POLICY_GPU_FRACTION = 0.6
ROUNDS_PER_BATCH = 16  #: Batches of an engine per replica, in a batch of a cluster.


@dataclass(frozen=True, slots=True)
class EngineSelection:
    """The engine that runs a model, with its options and its placement on a cluster."""

    #: The engine. A judge is a reward model that runs on the entry of a sampler.
    entry: SamplerEntry | ScorerEntry
    options: EngineOptions  #: Options of the engine.
    placement: Placement | None = None  #: Replicas on a Ray cluster; None: run in this process.

    @property
    def ref(self) -> EngineRef:
        """The engine as files name it: name, data type and API."""
        # A server and a recording do not read the data type, which may be set for a reward model.
        dtype = self.options.dtype if "dtype" in self.entry.options else "auto"
        is_remote = isinstance(self.entry, SamplerEntry) and self.entry.is_remote
        if not is_remote or not isinstance(self.options, SamplerOptions):
            return EngineRef(name=self.entry.name, dtype=dtype)
        return EngineRef(
            name=self.entry.name,
            dtype=dtype,
            api=self.options.server.api,
            seeds="not guaranteed",
            request_fields=self.options.server.request_fields or None,
        )

    @property
    def batch_size(self) -> int:
        """Prompts per batch, over all replicas, unless the user states another number.

        On a cluster, a batch holds many rounds of work. A slow replica then does not finish last,
        and replicas on nodes that join later have work.

        Raises:
            InputError: if the cluster is too small for the requested replicas.
        """
        if isinstance(self.options, SamplerOptions) and self.options.batch_size:
            return self.options.batch_size
        rounds = ROUNDS_PER_BATCH * self.placement.replica_count if self.placement else 1
        return self.entry.batch_size * rounds

    def with_memory_limit(self, gpu_fraction: float) -> Self:
        """Return the selection with a default for the fraction of the GPU memory to use.

        An argument of the user has priority. Engines that take no more memory than they need have
        no such argument, and stay as they are.
        """
        if not self.entry.memory_argument:
            return self
        memory = f"{self.entry.memory_argument}={gpu_fraction:g}"
        options = self.options.replace(engine_arg=(memory, *self.options.engine_arg))
        return replace(self, options=options)


def select_sampler(options: EngineOptions, model_count: int = 1) -> EngineSelection:
    """Select the engine and the placement of a model that samples.

    Args:
        options: The user's options.
        model_count: Number of models that share the cluster.

    Raises:
        UnavailableError: if the engine is not installed, or there is no cluster.
    """
    return _select(options, model_count, "sampler")


def select_sampler_with_scorer(options: EngineOptions) -> EngineSelection:
    """Select the engine of a policy that runs together with a reward model.

    Both share the GPU, and by default vLLM takes all GPU memory. Under Ray, each model has its own
    GPUs. :func:`select_sampler` states the errors.
    """
    selection = select_sampler(options, model_count=2)
    if options.uses_ray:
        return selection
    return selection.with_memory_limit(POLICY_GPU_FRACTION)


def select_scorer(
    options: ScorerOptions, weights: ResolvedWeights, model_count: int = 1
) -> EngineSelection:
    """Select the engine and the placement of a reward model.

    A published PRM runs on some engines only if the user names them.

    Args:
        options: The user's options.
        weights: The reward model.
        model_count: Number of models that share the cluster.

    Raises:
        InputError: if the named engine cannot run the reference model of a PRM format.
        UnavailableError: if the engine is not installed, or there is no cluster.
    """
    if not isinstance(weights, PublishedPrm):
        return _select(options, model_count, "scorer")
    if weights.prm_format.is_judge:
        if options.engine_entry.is_remote:
            raise InputError(
                "a judge writes critiques, which `/pooling` does not return. Choose an engine that "
                "runs the judge on this machine, such as `engine=vllm`.",
                field="engine",
                value=options.engine,
            )
        return _select(options, model_count, "sampler")
    selection = _select(options, model_count, "scorer")
    entry = selection.entry
    assert isinstance(entry, ScorerEntry)
    is_named = options.engine == entry.name
    if not is_named and not entry.is_automatic_for_published:
        return replace(selection, entry=fallback_engine(SCORERS))
    if weights.reference is not None and not entry.computes_log_ratios:
        raise InputError(
            f"{entry.name} cannot compute the log-ratios of the PRM format "
            f"{weights.prm_format.name}. Use `engine={fallback_engine(SCORERS).name}`.",
            field="engine",
            value=entry.name,
        )
    return selection


def _select(options: EngineOptions, model_count: int, role: EngineRole) -> EngineSelection:
    data_parallel_size = options.engine_args.get("data_parallel_size", 1)
    if not options.uses_ray and data_parallel_size == 1:
        engine = resolve_engine(options.engine, options.device, role)
        return EngineSelection(find_entry(engine, role), options)
    gpus_per_replica = _gpus_per_replica(options)
    if options.uses_ray:
        engine = resolve_engine_on_cluster(resolve_engine, options.device, role)
        replica_count = options.actors
    else:
        engine = resolve_engine(options.engine, options.device, role)
        replica_count = data_parallel_size
    entry = find_entry(engine, role)
    placement = Placement(
        actors=replica_count,
        gpus_per_replica=gpus_per_replica,
        model_count=model_count,
    )
    return EngineSelection(entry, options, placement)


def _gpus_per_replica(options: EngineOptions) -> int | None:
    """Return the GPUs of a replica: 0 on CPUs, None for one GPU if the cluster has GPUs."""
    sizes = ("tensor_parallel_size", "pipeline_parallel_size")
    gpus: int = math.prod(options.engine_args.get(size, 1) for size in sizes)
    if options.device == "cpu":
        return 0
    return None if gpus == 1 else gpus


def find_entry(name: str, role: EngineRole) -> SamplerEntry | ScorerEntry:
    """Return the sampler or the scorer of an engine.

    Raises:
        InputError: if the engine does not exist, or lacks the component.
    """
    if role == "sampler":
        return SAMPLERS.find(name, field="engine")
    return SCORERS.find(name, field="engine")


def resolve_engine(name: str, device: str, role: EngineRole) -> str:
    """Return the engine for a name: ``auto`` becomes vLLM if vLLM can run, else transformers.

    Only transformers takes ``device="cpu"``. Scorers on CPUs also run on transformers, which
    computes a prompt once for all its solutions.

    Raises:
        InputError: if the engine does not exist.
        UnavailableError: if the packages of the engine are not installed.
    """
    entry: EngineEntry = find_entry(name, role)
    if entry.is_automatic:
        registry: Registry[Any] = SAMPLERS if role == "sampler" else SCORERS
        entry = choose_engine(registry, device)
    missing = [package for package in entry.packages if find_spec(package) is None]
    if missing:
        raise engine_error(
            entry.name,
            f"the engine needs {' and '.join(missing)}, not installed here. Install with: "
            f"{install_command(entry.extra)}{entry.alternative}",
        )
    return entry.name
