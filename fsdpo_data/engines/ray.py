"""The ``ray`` engine: replicas of a model in Ray actors, by default on every GPU of a cluster.

No other module imports ray. The cluster is at ``RAY_ADDRESS``; without this variable, Ray starts on
this machine. Each replica runs another engine, such as vLLM. A sample depends only on (seed,
prompt, index), so a run can start on one machine and continue on several. Nodes may join and leave
while it runs.
"""

import math
import os
import socket
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from fsdpo_data.core.errors import FsdpoError, InputError, install_command
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.lazy import ray
from fsdpo_data.core.plugins import plugin_environment
from fsdpo_data.core.sampling import Prompt, SamplingSpec
from fsdpo_data.engines.registry import EngineRole, engine_error
from fsdpo_data.engines.samplers import SampleResult, close_engine
from fsdpo_data.engines.scorers import ScoreResult, ScorerInput

MAX_CONSECUTIVE_DEATHS = 3  #: Replicas that may die in a row before the pool gives up.
MIN_CHUNK_ITEMS = 8  #: Minimum items per chunk, unless each replica gets fewer items.
#: Seconds between two counts of the nodes. A death counts only at the next count, because Ray may
#: report the death of a replica before the end of its node.
RESIZE_INTERVAL_SECONDS = 1.0
NODE_TIMEOUT_SECONDS = 600.0  #: Seconds to wait for a node if no node has space for a replica.
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
        resources = self.fit(nodes)
        replica_count = self.actors or 1
        if resources.replica_count >= replica_count:
            return resources
        n_gpus = self.gpus_on(nodes)
        unit = f"place(s) with {n_gpus} GPU(s)" if n_gpus else "CPUs"
        raise InputError(
            f"the Ray cluster has {self._places(nodes)} {unit}, but needs more for "
            f"{self.model_count} model(s) with {replica_count} replica(s) each. Use fewer actors, "
            "add nodes to the cluster, or choose another engine.",
            field="actors" if self.actors else "engine",
            value=replica_count if self.actors else "ray",
        )

    def fit(self, nodes: Sequence[Any]) -> ReplicaResources:
        """Return the replicas that fit on ``ray.nodes()``: at most ``actors``, perhaps none."""
        places_per_model = self._places(nodes) // self.model_count
        n_gpus = self.gpus_on(nodes)
        if n_gpus:
            replica_count = min(self.actors or places_per_model, places_per_model)
            return ReplicaResources(replica_count, {"num_gpus": n_gpus, "num_cpus": 1})
        cores = _cores_by_node(nodes)
        replica_count = min(self.actors or len(cores), places_per_model)
        if not replica_count:
            return ReplicaResources(0, {})
        replicas_per_node = math.ceil(replica_count * self.model_count / len(cores))
        reserved_cpus = max(1, min(cores) // replicas_per_node)
        return ReplicaResources(replica_count, {"num_gpus": 0, "num_cpus": reserved_cpus})

    def gpus_on(self, nodes: Sequence[Any]) -> int:
        """Return the GPUs of a replica on ``ray.nodes()``; 0: run on CPUs."""
        if self.gpus_per_replica is not None:
            return self.gpus_per_replica
        return int(any(node.get("GPU", 0) for node in _node_resources(nodes)))

    def _places(self, nodes: Sequence[Any]) -> int:
        """Return the number of replicas, of all models together, that the nodes have space for."""
        n_gpus = self.gpus_on(nodes)
        if n_gpus:
            return sum(int(node.get("GPU", 0) / n_gpus) for node in _node_resources(nodes))
        return sum(_cores_by_node(nodes))


def _node_resources(nodes: Sequence[Any]) -> list[dict[str, float]]:
    """Return the resources of the nodes that are in the cluster."""
    return [node["Resources"] for node in nodes if node["Alive"]]


def _cores_by_node(nodes: Sequence[Any]) -> list[int]:
    """Return the number of cores of each node that has any."""
    cores = [int(resources.get("CPU", 0)) for resources in _node_resources(nodes)]
    return [n_cores for n_cores in cores if n_cores]


@dataclass(eq=False, slots=True)
class _Replica:
    """A replica of a pool."""

    actor: Any  #: The Ray actor.
    node_id: str | None = None  #: Node on which it runs; None until it has started.


class _Death(NamedTuple):
    """The death of a replica since the last result."""

    node_id: str | None  #: Node on which the replica ran; None if it had not started.
    error: Exception  #: Error of its last call.


class _Chunk(NamedTuple):
    """Items that one replica is processing."""

    replica: _Replica  #: The replica.
    pending: dict[int, int]  #: Unfinished items: index in the batch by index in the chunk.


@dataclass(eq=False, slots=True)
class _Batch:
    """Items that the replicas of a pool share, and the calls of the replicas.

    Chunks are contiguous, because solutions of one prompt share its computation.
    """

    method: Literal["sample", "score"]  #: What the engines do with the items.
    items: Sequence[Any]  #: The items.
    max_chunk_items: int  #: Maximum number of items per chunk.
    spec: SamplingSpec | None = None  #: Settings of samples; None for scores.
    missing: list[int] = field(init=False)  #: Indices of the items that no replica processes.
    #: Replicas whose start is not confirmed, by the call of their node id. An idle replica
    #: returns at once, and a new one when it has started.
    starting: dict[Any, _Replica] = field(default_factory=dict)
    idle: list[_Replica] = field(default_factory=list)  #: Replicas without a call.
    #: Chunks by the Ray generator of their results.
    running: dict[Any, _Chunk] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.missing = list(range(len(self.items)))

    @property
    def is_finished(self) -> bool:
        """Whether every item has its result."""
        return not self.missing and not any(chunk.pending for chunk in self.running.values())

    @property
    def calls(self) -> list[Any]:
        """The calls of all replicas."""
        return [*self.running, *self.starting]

    def add_replicas(self, replicas: Iterable[_Replica]) -> None:
        """Let replicas take chunks as soon as they have started."""
        for replica in replicas:
            self.starting[replica.actor.node_id.remote()] = replica

    def send_chunk(self, n_items: int) -> None:
        """Send the next missing items to an idle replica."""
        n_chunk_items = min(self.max_chunk_items, n_items)
        indices, self.missing = self.missing[:n_chunk_items], self.missing[n_chunk_items:]
        replica = self.idle.pop()
        process = replica.actor.process.options(num_returns="streaming")
        chunk_items = [self.items[index] for index in indices]
        results = process.remote(self.method, chunk_items, self.spec)
        self.running[results] = _Chunk(replica, dict(enumerate(indices)))

    def receive(self, call: Any) -> tuple[int, Any] | None:
        """Return the index and the result of an item, if the call that returned has one.

        Raises:
            FsdpoError: that the replica raised.
            RayActorError: if the replica died or cannot be reached.
        """
        if call in self.starting:
            replica = self.starting[call]
            replica.node_id = ray.get(call)
            del self.starting[call]
            self.idle.append(replica)
            return None
        chunk = self.running[call]
        try:
            chunk_index, result = _get_result(next(call))
        except StopIteration:
            del self.running[call]
            self.idle.append(chunk.replica)
            return None
        return chunk.pending.pop(chunk_index), result

    def take_back(self, call: Any) -> _Replica:
        """Mark the unfinished items of a failed call as missing; return its replica."""
        if call in self.starting:
            return self.starting.pop(call)
        chunk = self.running.pop(call)
        self.missing = sorted([*self.missing, *chunk.pending.values()])
        return chunk.replica


class ReplicaPool:
    """A pool of replicas that share every batch of a sampler or a scorer.

    Each replica is a Ray actor that loads the model on its first call. An idle replica takes the
    next chunk of items, and chunks shrink as the work runs out (guided self-scheduling,
    Polychronopoulos & Kuck 1987). If a replica dies, a new one starts, and the others process its
    chunk. The number of replicas follows the nodes of the cluster while there is work.

    Args:
        model: The model of the replicas.
        load: Function without arguments that loads the engine; Ray sends it to the actors.
        placement: Maximum number of the replicas, and their resources.
        batch_size: Maximum number of prompts per chunk.
    """

    def __init__(
        self, model: ModelRef, load: Callable[[], Any], placement: Placement, batch_size: int
    ) -> None:
        self.model = model
        self._load = load
        self._batch_size = batch_size
        start_ray()
        nodes = ray.nodes()
        placement.resources(nodes)  # refuses a cluster that is too small
        # A run that started on GPUs stays on GPUs, even if the nodes with GPUs leave for a while.
        self._placement = replace(placement, gpus_per_replica=placement.gpus_on(nodes))
        self._replicas: list[_Replica] = []
        self._deaths: list[_Death] = []  #: Deaths since the last result.
        self._last_fit_seconds = time.monotonic()  #: Time at which a node had space for a replica.
        # Also at the exit of the process, because actors are slow to end by themselves.
        self._kill = weakref.finalize(self, _kill_replicas, self._replicas)
        self._resize()

    @property
    def replica_count(self) -> int:
        """The number of replicas that run or start."""
        return len(self._replicas)

    def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterator[SampleResult]:
        """Yield the completions or the error of each prompt as the replicas finish them.

        The replica measures the seconds of its completions.
        """
        return self._process(_Batch("sample", prompts, self._batch_size, spec))

    def score(self, items: Sequence[ScorerInput]) -> Iterator[ScoreResult]:
        """Yield the step rewards or the error of each item as the replicas finish them."""
        return self._process(_Batch("score", items, len(items)))

    def _process(self, batch: _Batch) -> Iterator[tuple[int, Any]]:
        """Yield the index and the result of every item, in the order in which they finish.

        Raises:
            FsdpoError: that a replica raised.
            UnavailableError: if too many replicas died in a row without any result.
        """
        self._deaths = []
        batch.add_replicas(self._replicas)
        unreachable: list[_Replica] = []
        resize_seconds = -math.inf
        while not batch.is_finished:
            if batch.missing and time.monotonic() - resize_seconds > RESIZE_INTERVAL_SECONDS:
                batch.add_replicas([*self._resize(), *unreachable])
                unreachable = []
                resize_seconds = time.monotonic()
            while batch.missing and batch.idle:
                batch.send_chunk(self._chunk_items(len(batch.items), len(batch.missing)))
            for call in _wait_for_calls(batch.calls):
                try:
                    result = batch.receive(call)
                except ray.exceptions.ActorUnavailableError:
                    # The next call says whether the replica died, and why.
                    unreachable.append(batch.take_back(call))
                    continue
                except ray.exceptions.RayActorError as error:
                    self._remove(batch.take_back(call), error)
                    continue
                if result is not None:
                    yield result
                    self._deaths = []

    def _chunk_items(self, n_items: int, n_missing: int) -> int:
        """Return the number of items of the next chunk, of ``n_missing`` items that are left."""
        replica_count = max(1, self.replica_count)
        min_items = min(MIN_CHUNK_ITEMS, math.ceil(n_items / replica_count))
        return max(min_items, n_missing // (2 * replica_count))

    def _resize(self) -> list[_Replica]:
        """Start the replicas that the nodes have space for, and return them.

        Raises:
            UnavailableError: if too many replicas died in a row, or there is no node for long.
        """
        nodes = ray.nodes()
        self._check_deaths(nodes)
        resources = self._placement.fit(nodes)
        surplus = max(0, self.replica_count - resources.replica_count)
        for replica in [replica for replica in self._replicas if replica.node_id is None][:surplus]:
            self._remove(replica)  # waits for a node that left
        new_replicas = []
        if resources.replica_count > self.replica_count:
            make_actor = ray.remote(**resources.actor_options, **_plugin_options())(_ReplicaActor)
            for _ in range(resources.replica_count - self.replica_count):
                new_replicas.append(_Replica(make_actor.remote(self._load)))
            self._replicas += new_replicas
        if self._replicas:
            self._last_fit_seconds = time.monotonic()
        elif time.monotonic() - self._last_fit_seconds > NODE_TIMEOUT_SECONDS:
            raise engine_error(
                "ray",
                f"no node had space for a replica for {NODE_TIMEOUT_SECONDS:.0f} seconds. Finished "
                "samples are saved, so you can resume the run when the nodes are back.",
            )
        return new_replicas

    def _check_deaths(self, nodes: Sequence[Any]) -> None:
        """Raise UnavailableError if too many replicas died in a row on nodes that did not leave."""
        alive = {node["NodeID"] for node in nodes if node["Alive"]}
        deaths = [death for death in self._deaths if death.node_id in {None, *alive}]
        if len(deaths) > MAX_CONSECUTIVE_DEATHS:
            raise engine_error(
                "ray",
                f"a replica of the model died {len(deaths)} times in a row "
                f"({str(deaths[-1].error).splitlines()[0]}). Finished samples are saved, so you "
                "can resume the run. If memory ran out, use fewer actors or a smaller batch.",
            ) from deaths[-1].error

    def _remove(self, replica: _Replica, error: Exception | None = None) -> None:
        """Remove a replica that died with an error, or that is not needed."""
        if replica not in self._replicas:
            return
        self._replicas.remove(replica)
        ray.kill(replica.actor)  # it may still live, if only its connection broke
        if error is not None:
            self._deaths.append(_Death(replica.node_id, error))

    def close(self) -> None:
        """Shut down the replicas and free their memory."""
        calls = [replica.actor.close.remote() for replica in self._replicas]
        # The timeout covers replicas that died or hang.
        ray.wait(calls, num_returns=len(calls), timeout=CLOSE_TIMEOUT_SECONDS)
        self._kill()


class _ReplicaActor:
    """The Ray actor of a replica; it loads the engine when the first items arrive."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load

    @cached_property
    def _engine(self) -> Any:
        return self._load()

    def node_id(self) -> str:
        """Return the id of the node on which the actor runs."""
        node_id: str = ray.get_runtime_context().get_node_id()
        return node_id

    def process(
        self,
        method: str,
        items: Sequence[Any],
        spec: SamplingSpec | None,
    ) -> Iterator[tuple[int, Any]]:
        """Yield the index and the result of each item as it finishes."""
        results: Iterable[tuple[int, Any]]
        if method == "sample":
            results = self._engine.sample(items, spec)
        else:
            results = self._engine.score(items)
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


def _kill_replicas(replicas: Sequence[_Replica]) -> None:
    for replica in replicas:
        ray.kill(replica.actor)


def _wait_for_calls(calls: Sequence[Any]) -> list[Any]:
    """Return the calls with a result, or none of them after the interval of resizing."""
    if calls:
        finished, _ = ray.wait(calls, timeout=RESIZE_INTERVAL_SECONDS, fetch_local=False)
        return list(finished)
    time.sleep(RESIZE_INTERVAL_SECONDS)  # until a node joins
    return []


def _get_result(call: Any) -> Any:
    """Return the result of a Ray call, and raise our own errors without Ray's wrapper."""
    try:
        return ray.get(call)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, FsdpoError):
            raise error.cause from None
        raise
