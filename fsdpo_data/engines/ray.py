"""The ``ray`` engine: replicas of a model in Ray actors, by default on every GPU of a cluster.

No other module imports ray. The cluster is at ``RAY_ADDRESS``; without this variable, Ray starts on
this machine. Each replica runs another engine, such as vLLM. A sample depends only on (seed,
prompt, index), so a run can start on one machine and continue on several.
"""

import math
import os
import socket
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

from fsdpo_data.core.errors import FsdpoError, InputError, ItemError, install_command
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.lazy import ray
from fsdpo_data.core.plugins import plugin_environment
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.registry import EngineRole, engine_error
from fsdpo_data.engines.samplers import (
    PromptFailure,
    PromptOutcome,
    PromptResult,
    StreamingSampler,
    close_engine,
    stream,
    stream_outcomes,
)
from fsdpo_data.engines.scorers import ScoreOutcome, ScorerInput, score_outcomes

MAX_CONSECUTIVE_DEATHS = 3  #: Replicas that may die in a row before the pool gives up.
MIN_CHUNK_ITEMS = 8  #: Minimum items per chunk, unless each replica gets fewer items.
CLOSE_TIMEOUT_SECONDS = 60.0  #: Seconds that replicas have to free their memory.


class ReplicaResources(NamedTuple):
    """Number and resources of the replicas of a model on a cluster."""

    replica_count: int  #: Number of replicas.
    actor_options: dict[str, float]  #: ``num_gpus`` and ``num_cpus`` that Ray reserves per replica.


@dataclass(frozen=True, slots=True)
class Placement:
    """The replicas of a model that a cluster should run."""

    actors: int | None = (
        None  #: Number of replicas. None: as many as fit on GPUs, or one per node on CPUs.
    )
    #: GPUs per replica; 0: run on CPUs; None: one GPU, or CPUs if the cluster has no GPU.
    gpus_per_replica: int | None = None
    model_count: int = 1  #: Models that share the cluster in equal parts.
    gpu_fraction: float = (
        1.0  #: Share of a GPU, or of a CPU core, that a replica reserves; at most 1.
    )

    @property
    def replica_count(self) -> int:
        """The number of replicas on the current cluster."""
        start_ray()
        return self.resources(ray.nodes()).replica_count

    def resources(self, nodes: Sequence[Any]) -> ReplicaResources:
        """Return the number of replicas on ``ray.nodes()``, and the resources of each.

        Raises:
            InputError: if the cluster is too small for the replicas.
        """
        node_resources = [node["Resources"] for node in nodes if node["Alive"]]
        gpus = self.gpus_per_replica
        if gpus is None:
            gpus = int(any(node.get("GPU", 0) for node in node_resources))
        if gpus:
            reserved_gpus = gpus * self.gpu_fraction
            capacity = sum(int(node.get("GPU", 0) / reserved_gpus) for node in node_resources)
            replica_count = self._check_capacity(
                capacity,
                default=capacity // self.model_count,
                unit=f"place(s) with {reserved_gpus:g} GPU(s)",
            )
            return ReplicaResources(
                replica_count, {"num_gpus": reserved_gpus, "num_cpus": self.gpu_fraction}
            )
        cores = [int(node.get("CPU", 0)) for node in node_resources]
        replica_count = self._check_capacity(
            int(sum(cores) / self.gpu_fraction), default=len(cores), unit="CPUs"
        )
        replicas_per_node = math.ceil(replica_count * self.model_count / len(cores))
        reserved_cpus = min(cores) // replicas_per_node or self.gpu_fraction
        return ReplicaResources(replica_count, {"num_gpus": 0, "num_cpus": reserved_cpus})

    def _check_capacity(self, capacity: int, *, default: int, unit: str) -> int:
        """Return the number of replicas; InputError if they exceed the cluster's capacity."""
        replica_count = self.actors or default
        if 1 <= replica_count * self.model_count <= capacity:
            return replica_count
        raise InputError(
            f"the Ray cluster has {capacity} {unit}, but needs more for {self.model_count} "
            f"model(s) with {max(1, replica_count)} replica(s) each. Use fewer actors, add nodes "
            "to the cluster, or choose another engine.",
            field="actors" if self.actors else "engine",
            value=replica_count if self.actors else "ray",
        )


class _Chunk(NamedTuple):
    """Items that one replica is processing."""

    actor: Any  #: The Ray actor of the replica.
    pending: dict[int, int]  #: Unfinished items: index in the pool's batch by index in the chunk.


class ReplicaPool(StreamingSampler):
    """A pool of replicas that share every batch of a sampler or a scorer.

    Each replica is a Ray actor that loads the model on its first call. An idle replica takes the
    next chunk of items, and chunks shrink as the work runs out (guided self-scheduling,
    Polychronopoulos & Kuck 1987). If a replica dies, a new one starts, and the others process its
    chunk.

    Args:
        model: The model of the replicas.
        load: Function without arguments that loads the engine; Ray sends it to the actors.
        placement: Number and resources of the replicas.
        batch_size: Maximum number of prompts per chunk.
    """

    def __init__(
        self, model: ModelRef, load: Callable[[], Any], placement: Placement, batch_size: int
    ) -> None:
        self.model = model
        self._batch_size = batch_size
        start_ray()
        resources = placement.resources(ray.nodes())
        actor_class = ray.remote(**resources.actor_options, **_plugin_options())(_Replica)
        self._start_replica = partial(actor_class.remote, load)
        self._actors = [self._start_replica() for _ in range(resources.replica_count)]
        self._consecutive_deaths = 0
        # Also at the exit of the process, because actors are slow to end by themselves.
        self._kill = weakref.finalize(self, _kill_actors, self._actors)

    def stream(self, prompts: Sequence[str], spec: SamplingSpec) -> Iterator[PromptResult]:
        """Yield ``spec.n`` completions of each prompt as the replicas finish them.

        The replica measures the seconds of its completions.
        """
        results = self._process("sample", prompts, max_chunk_items=self._batch_size, spec=spec)
        for index, completions in results:
            yield PromptResult(index, completions)

    def stream_outcomes(
        self, prompts: Sequence[str], spec: SamplingSpec
    ) -> Iterator[PromptOutcome]:
        """Yield the completions of each prompt, or the reason why its engine refuses it."""
        outcomes = self._process(
            "sample",
            prompts,
            max_chunk_items=self._batch_size,
            spec=spec,
            yields_errors=True,
        )
        for index, value in outcomes:
            if isinstance(value, ItemError):
                yield PromptFailure(index, value)
            else:
                yield PromptResult(index, value)

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Score every step of every item; see :class:`fsdpo_data.engines.scorers.Scorer`."""
        rewards_by_item = dict(self._process("score", items, max_chunk_items=len(items)))
        return [rewards_by_item[index] for index in range(len(items))]

    def score_outcomes(self, items: Sequence[ScorerInput]) -> list[ScoreOutcome]:
        """Score every item; return the error of an item in place of its rewards."""
        outcomes = dict(
            self._process("score", items, max_chunk_items=len(items), yields_errors=True)
        )
        return [outcomes[index] for index in range(len(items))]

    def _process(
        self,
        method: Literal["sample", "score"],
        items: Sequence[Any],
        *,
        max_chunk_items: int,
        spec: SamplingSpec | None = None,
        yields_errors: bool = False,
    ) -> Iterator[tuple[int, Any]]:
        """Yield the index and the result of every item, in the order in which they finish.

        Chunks are contiguous, because solutions of one prompt share its computation. With
        ``yields_errors``, the result of a failed item is its ItemError.

        Raises:
            FsdpoError: that a replica raised.
            UnavailableError: if too many replicas died in a row without any result.
        """
        missing = list(range(len(items)))
        self._consecutive_deaths = 0
        idle_actors: list[Any] = []
        min_chunk_items = min(MIN_CHUNK_ITEMS, math.ceil(len(items) / len(self._actors)))
        running: dict[Any, _Chunk] = {}  # by the Ray generator of the results

        def start_chunk(actor: Any, indices: Sequence[int]) -> None:
            """Send items to an actor."""
            call = actor.process.options(num_returns="streaming")
            chunk_items = [items[index] for index in indices]
            results = call.remote(method, chunk_items, spec, yields_errors)
            running[results] = _Chunk(actor, dict(enumerate(indices)))

        for actor in self._actors:
            start_chunk(actor, ())  # an empty chunk finishes when the actor has started
        while missing or any(chunk.pending for chunk in running.values()):
            while missing and idle_actors:
                fair_items = len(missing) // (2 * len(self._actors))
                chunk_items = min(max_chunk_items, max(min_chunk_items, fair_items))
                start_chunk(idle_actors.pop(), missing[:chunk_items])
                del missing[:chunk_items]
            for results in ray.wait(list(running), fetch_local=False)[0]:
                actor, pending = running[results]
                try:
                    chunk_index, result = _get_result(next(results))
                    yield pending.pop(chunk_index), result
                    self._consecutive_deaths = 0
                except StopIteration:
                    del running[results]
                    idle_actors.append(actor)
                except ray.exceptions.RayActorError as error:
                    del running[results]
                    start_chunk(self._replace_replica(actor, error), ())
                    missing = sorted([*missing, *pending.values()])

    def _replace_replica(self, dead_actor: Any, error: Exception) -> Any:
        """Start a replica in place of a dead one, and return its actor."""
        self._consecutive_deaths += 1
        if self._consecutive_deaths > MAX_CONSECUTIVE_DEATHS:
            raise engine_error(
                "ray",
                f"a replica of the model died {self._consecutive_deaths} times in a row "
                f"({str(error).splitlines()[0]}). Finished samples are saved, so you can resume "
                "the run. If memory ran out, use fewer actors or a smaller batch.",
            ) from error
        new_actor = self._start_replica()
        self._actors[self._actors.index(dead_actor)] = new_actor
        return new_actor

    def close(self) -> None:
        """Shut down the replicas and free their memory."""
        calls = [actor.close.remote() for actor in self._actors]
        # The timeout covers replicas that died or hang.
        ray.wait(calls, num_returns=len(calls), timeout=CLOSE_TIMEOUT_SECONDS)
        self._kill()


class _Replica:
    """The Ray actor of a replica; it loads the engine when the first items arrive."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load

    @cached_property
    def _engine(self) -> Any:
        return self._load()

    def process(
        self,
        method: str,
        items: Sequence[Any],
        spec: SamplingSpec | None,
        yields_errors: bool,
    ) -> Iterator[tuple[int, Any]]:
        """Yield the index and the result of each item as it finishes."""
        if not items:
            return
        results: Iterable[tuple[int, Any]]
        if method == "sample":
            assert spec is not None
            stream_engine = stream_outcomes if yields_errors else stream
            results = stream_engine(self._engine, items, spec)
        elif yields_errors:
            results = enumerate(score_outcomes(self._engine, items))
        else:
            results = enumerate(self._engine.score(items))
        # Ray calls `send`, which generators have and other iterators lack.
        yield from (result for result in results)

    def close(self) -> None:
        """Free the memory of the engine, if it was loaded."""
        if "_engine" in self.__dict__:
            close_engine(self._engine)


def start_ray() -> None:
    """Connect to the cluster at ``RAY_ADDRESS``, or start Ray on this machine.

    Raises:
        UnavailableError: if ray is not installed, or the cluster does not answer.
    """
    try:
        from ray import is_initialized  # fails for a folder that happens to be called ray
    except ImportError as error:
        raise engine_error(
            "ray",
            f"Ray cannot be imported ({error}). Install it here and on every node with: "
            f"{install_command('ray')}.",
        ) from error
    if is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Without an address, Ray would connect to the last cluster of this machine, even a dead one.
    address = os.environ.get("RAY_ADDRESS") or "local"
    try:
        _check_address(address)
        ray.init(address, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError) as error:
        raise engine_error(
            "ray",
            f"no Ray cluster at RAY_ADDRESS={address!r} ({str(error).splitlines()[0]}). Start "
            "one with `ray start --head`, or unset RAY_ADDRESS to use only this machine.",
        ) from error


def _check_address(address: str) -> None:
    """Raise OSError if nothing listens at HOST:PORT, where Ray would retry for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=10).close()


def resolve_engine_on_cluster(
    resolve_engine: Callable[[str, str, EngineRole], str], device: str, role: EngineRole
) -> str:
    """Return the engine that ``resolve_engine`` selects on a node of the cluster.

    The driver may be a machine without a GPU, so a Ray task with the resources of a replica
    decides.

    Raises:
        UnavailableError: if no engine can run on the node.
    """
    start_ray()
    placement = Placement(actors=1, gpus_per_replica=0 if device == "cpu" else None)
    task_options = placement.resources(ray.nodes()).actor_options | {"num_cpus": 0}
    task = ray.remote(**task_options, **_plugin_options())(resolve_engine)
    engine: str = _get_result(task.remote("auto", device, role))
    return engine


def _plugin_options() -> dict[str, Any]:
    """Return the options of actors and tasks that load the plug-ins of this process."""
    environment = plugin_environment()
    return {"runtime_env": {"env_vars": environment}} if environment else {}


def _kill_actors(actors: Sequence[Any]) -> None:
    for actor in actors:
        ray.kill(actor)


def _get_result(call: Any) -> Any:
    """Return the result of a Ray call, and raise our own errors without Ray's wrapper."""
    try:
        return ray.get(call)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, FsdpoError):
            raise error.cause from None
        raise
