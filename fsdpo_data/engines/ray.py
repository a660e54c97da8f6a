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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from fsdpo_data.core.errors import FsdpoError, InputError, install_command
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.lazy import ray
from fsdpo_data.core.plugins import plugin_environment
from fsdpo_data.core.sampling import Prompt, SamplingSpec
from fsdpo_data.engines.registry import EngineRole, engine_error
from fsdpo_data.engines.samplers import SampleResult, close_engine
from fsdpo_data.engines.scorers import ScoreResult, ScorerInput

MAX_DEATHS = 3  #: Replicas that may die in a row with an item, or at their start.
MIN_CHUNK_ITEMS = 8  #: Minimum items per chunk, unless each replica gets fewer items.
NODE_CHECK_SECONDS = 1.0  #: Seconds between two looks at the nodes.
NODE_TIMEOUT_SECONDS = 600.0  #: Seconds to wait for a node if no node has space for a replica.
CLOSE_TIMEOUT_SECONDS = 60.0  #: Seconds that replicas have to free their memory.


@dataclass(frozen=True, slots=True)
class Placement:
    """The replicas of a model that a cluster should run."""

    #: Number of replicas. None: as many as fit on GPUs, or one per node on CPUs.
    actors: int | None = None
    #: GPUs per replica; 0: run on CPUs; None: one GPU, or CPUs if the cluster has no GPU.
    gpus_per_replica: int | None = None
    model_count: int = 1  #: Models that share the cluster in equal parts.

    @property
    def replica_count(self) -> int:
        """The number of replicas on the current cluster.

        Raises:
            InputError: if the cluster is too small for the replicas.
        """
        start_ray()
        nodes = ray.nodes()
        return self.count(nodes, self.actor_options(nodes))

    def actor_options(self, nodes: Sequence[Any]) -> dict[str, float]:
        """Return the ``num_gpus`` and ``num_cpus`` that a replica reserves on ``ray.nodes()``.

        Raises:
            InputError: if the cluster is too small for the replicas.
        """
        resources = _node_resources(nodes)
        gpus_per_replica = self.gpus_per_replica
        if gpus_per_replica is None:
            gpus_per_replica = int(any(node.get("GPU", 0) for node in resources))
        gpus, cpus = gpus_per_replica, 1
        if not gpus:
            cores = [int(node["CPU"]) for node in resources if node.get("CPU", 0)] or [0]
            n_replicas = (self.actors or len(cores)) * self.model_count
            replicas_per_node = math.ceil(n_replicas / len(cores))
            cpus = min(cores) // replicas_per_node or 1
        options: dict[str, float] = {"num_gpus": gpus, "num_cpus": cpus}
        replica_count = self.actors or 1
        if self.count(nodes, options) >= replica_count:
            return options
        n_places = sum(_count_places_by_node(nodes, options))
        unit = f"{gpus} GPU(s) and {cpus} CPU(s)" if gpus else f"{cpus} CPU(s)"
        raise InputError(
            f"the Ray cluster has {n_places} place(s) with {unit}, but needs more for "
            f"{self.model_count} model(s) with {replica_count} replica(s) each. Use fewer actors, "
            "add nodes to the cluster, or choose another engine.",
            field="actors" if self.actors else "engine",
            value=replica_count if self.actors else "ray",
        )

    def count(self, nodes: Sequence[Any], actor_options: dict[str, float]) -> int:
        """Return the number of replicas that fit on ``ray.nodes()``, perhaps none."""
        place_counts = _count_places_by_node(nodes, actor_options)
        places_per_model = sum(place_counts) // self.model_count
        if self.actors is None and not actor_options["num_gpus"]:
            return min(places_per_model, sum(count > 0 for count in place_counts))
        return min(places_per_model, self.actors or places_per_model)


def _count_places_by_node(nodes: Sequence[Any], actor_options: dict[str, float]) -> list[int]:
    """Return the number of replicas, of all models together, that each node has space for."""
    reserved = {"CPU": actor_options["num_cpus"]}
    if actor_options["num_gpus"]:
        reserved["GPU"] = actor_options["num_gpus"]
    return [
        min(int(node.get(name, 0) / amount) for name, amount in reserved.items())
        for node in _node_resources(nodes)
    ]


def _node_resources(nodes: Sequence[Any]) -> list[dict[str, float]]:
    """Return the resources of the nodes that are in the cluster."""
    return [node["Resources"] for node in nodes if node["Alive"]]


class _Chunk(NamedTuple):
    """Items that one replica processes; none, until the replica has started."""

    replica: Any  #: The Ray actor.
    n_items: int  #: Number of the items.
    pending: set[int]  #: Indices of the items without a result.


class ReplicaPool:
    """A pool of replicas that share every batch of a sampler or a scorer.

    Each replica is a Ray actor that loads the model on its first call. An idle replica takes the
    next chunk of items, and chunks shrink as the work runs out (guided self-scheduling,
    Polychronopoulos & Kuck 1987). If a replica dies, the others process its chunk. While there is
    work, a replica starts wherever the nodes of the cluster have space for one.

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
        self._placement = placement
        start_ray()
        # All replicas reserve the same: a run that started on GPUs stays on GPUs.
        self._actor_options = placement.actor_options(ray.nodes())
        self._replicas: set[Any] = set()  #: The Ray actors.
        self._last_fit_seconds = time.monotonic()  #: Time at which a node had space for a replica.
        self._start_replicas()

    @property
    def replica_count(self) -> int:
        """The number of replicas that the nodes have space for."""
        return self._placement.count(ray.nodes(), self._actor_options)

    def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterator[SampleResult]:
        """Yield the completions or the error of each prompt as the replicas finish them.

        The replica measures the seconds of its completions.
        """
        return self._process(prompts, self._batch_size, "sample", spec)

    def score(self, items: Sequence[ScorerInput]) -> Iterator[ScoreResult]:
        """Yield the step rewards or the error of each item as the replicas finish them."""
        return self._process(items, len(items), "score")

    def _process(
        self, items: Sequence[Any], max_chunk_items: int, method: str, *settings: SamplingSpec
    ) -> Iterator[tuple[int, Any]]:
        """Yield the index and the result of every item, in the order in which they finish.

        Chunks are contiguous, because solutions of one prompt share its computation.

        Raises:
            FsdpoError: that a replica raised.
            UnavailableError: if replicas always die at their start or with an item.
        """
        missing = list(range(len(items)))  # indices of the items that no replica processes
        deaths: Counter[int] = Counter()  # by item
        failed_checks: set[float] = set()  # times of the checks whose replicas died at their start
        idle: list[Any] = []
        calls = dict(_call_replica(replica) for replica in self._replicas)
        check_seconds = -math.inf
        while missing or any(chunk.pending for chunk in calls.values()):
            if missing and time.monotonic() - check_seconds > NODE_CHECK_SECONDS:
                calls |= dict(_call_replica(replica) for replica in self._start_replicas())
                check_seconds = time.monotonic()
            while missing and idle:
                n_items = min(max_chunk_items, self._chunk_items(len(items), len(missing)))
                chunk_items = {index: items[index] for index in missing[:n_items]}
                missing = missing[n_items:]
                call, chunk = _call_replica(idle.pop(), chunk_items, method, *settings)
                calls[call] = chunk
            for call in _wait_for_calls([*calls]):
                chunk = calls[call]
                try:
                    index, result = _get_result(next(call))
                except StopIteration:
                    del calls[call]
                    idle.append(chunk.replica)
                except ray.exceptions.RayActorError as error:
                    del calls[call]
                    self._replicas.discard(chunk.replica)
                    ray.kill(chunk.replica)  # it may still live, if only its connection broke
                    missing = sorted([*missing, *chunk.pending])
                    if not chunk.n_items:
                        failed_checks.add(check_seconds)
                    elif len(chunk.pending) == chunk.n_items:
                        deaths.update(chunk.pending)
                    _check_deaths(max([len(failed_checks), *deaths.values()]), error)
                else:
                    chunk.pending.remove(index)
                    failed_checks.clear()
                    yield index, result

    def _chunk_items(self, n_items: int, n_missing: int) -> int:
        """Return the number of items of the next chunk, of ``n_missing`` items that are left."""
        replica_count = max(1, self.replica_count)
        min_items = min(MIN_CHUNK_ITEMS, math.ceil(n_items / replica_count))
        return max(min_items, n_missing // (2 * replica_count))

    def _start_replicas(self) -> list[Any]:
        """Start the further replicas that the nodes have space for, and return them.

        Raises:
            UnavailableError: if no node had space for a replica for long.
        """
        replica_count = self.replica_count
        if replica_count:
            self._last_fit_seconds = time.monotonic()
        elif time.monotonic() - self._last_fit_seconds > NODE_TIMEOUT_SECONDS:
            raise engine_error(
                "ray",
                f"no node had space for a replica for {NODE_TIMEOUT_SECONDS:.0f} seconds. Finished "
                "samples are saved, so you can resume the run when the nodes are back.",
            )
        # Without `max_restarts`: a chunk for an actor that Ray restarts would wait for a free node,
        # although other replicas are idle.
        make_replica = ray.remote(
            **self._actor_options, **_plugin_options(), scheduling_strategy="SPREAD"
        )(_ReplicaActor)
        n_new = max(0, replica_count - len(self._replicas))
        replicas = [make_replica.remote(self._load) for _ in range(n_new)]
        self._replicas.update(replicas)
        return replicas

    def close(self) -> None:
        """Shut down the replicas and free their memory."""
        calls = [replica.close.remote() for replica in self._replicas]
        # A replica that waits for a node never answers. The timeout covers replicas that hang.
        if n_running := min(len(calls), self.replica_count):
            ray.wait(calls, num_returns=n_running, timeout=CLOSE_TIMEOUT_SECONDS)
        for replica in self._replicas:
            ray.kill(replica)


def _call_replica(
    replica: Any, items: dict[int, Any] | None = None, method: str = "", *settings: SamplingSpec
) -> tuple[Any, _Chunk]:
    """Send items to a replica; return the generator of the results, and the chunk.

    Without items, the call ends as soon as the replica has started.
    """
    items = items or {}
    results = replica.process.options(num_returns="streaming").remote(items, method, *settings)
    return results, _Chunk(replica, len(items), set(items))


def _wait_for_calls(calls: Sequence[Any]) -> list[Any]:
    """Return the calls with a result, or none of them after the time between two checks."""
    if calls:
        finished, _ = ray.wait(calls, timeout=NODE_CHECK_SECONDS, fetch_local=False)
        return list(finished)
    time.sleep(NODE_CHECK_SECONDS)  # until a node joins
    return []


def _check_deaths(n_deaths: int, error: Any) -> None:
    """Raise UnavailableError if too many replicas died in a row, the last one with an error."""
    if n_deaths > MAX_DEATHS:
        # The first line says that the replica died; the last one has the error of its start.
        reason = str(error).strip().splitlines()[-1 if error.actor_init_failed else 0]
        raise engine_error(
            "ray",
            f"a replica of the model died {n_deaths} times in a row ({reason}). Finished samples "
            "are saved, so you can resume the run. If memory ran out, use fewer actors or a "
            "smaller batch.",
        ) from error


class _ReplicaActor:
    """The Ray actor of a replica; it loads the engine when the first items arrive."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load

    @cached_property
    def _engine(self) -> Any:
        return self._load()

    def process(
        self, items: dict[int, Any], method: str, *settings: SamplingSpec
    ) -> Iterator[tuple[int, Any]]:
        """Yield the index and the result of each item as it finishes."""
        if not items:
            return
        indices = list(items)
        for position, result in getattr(self._engine, method)(list(items.values()), *settings):
            yield indices[position], result

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
    task_options = placement.actor_options(ray.nodes()) | {"num_cpus": 0}
    task = ray.remote(**task_options, **_plugin_options())(resolve_engine)
    engine: str = _get_result(task.remote("auto", device, role))
    return engine


def _plugin_options() -> dict[str, Any]:
    """Return the options of actors and tasks that load the plug-ins of this process."""
    environment = plugin_environment()
    return {"runtime_env": {"env_vars": environment}} if environment else {}


def _get_result(call: Any) -> Any:
    """Return the result of a Ray call, and raise our own errors without Ray's wrapper."""
    try:
        return ray.get(call)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, FsdpoError):
            raise error.cause from None
        raise
