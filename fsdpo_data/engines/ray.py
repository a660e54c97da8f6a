"""Samplers and scorers as Ray actors: a copy of the engine on every GPU of a cluster.

The only importer of ray. It reaches the cluster at ``RAY_ADDRESS``, or starts one on this machine.
Every copy does what the engine does here, and a sample depends on (seed, prompt, index) alone, so a
run may begin on one machine and go on over many.
"""

import math
import os
import socket
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from fsdpo_data.core.errors import FsdpoError, InputError, install_command
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.lazy import ray
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.registry import engine_error
from fsdpo_data.engines.samplers import PromptResult, StreamingSampler, close_engine, stream
from fsdpo_data.engines.scorers import ScorerInput

MAX_CONSECUTIVE_DEATHS = 3  #: Copies in a row that may die before another is not started any more.
MIN_CHUNK_ITEMS = 8  #: Items of a run, unless there are fewer for each copy.
CLOSE_TIMEOUT_SECONDS = 60.0  #: Seconds for copies to give back what they hold.


@dataclass(frozen=True, slots=True)
class Placement:
    """Where copies of a model run."""

    actors: int | None = None  #: How many; as many as there is room for if None.
    gpus: int | None = None  #: GPUs of each, 0 to run on CPUs; by what the cluster has if None.
    models: int = 1  #: Models that share the cluster: each gets its part of the room.
    gpu_fraction: float = 1.0  #: Part of a GPU, or of a core, that a copy needs.

    @property
    def replica_count(self) -> int:
        """Copies there will be on the cluster, as :meth:`resources` says."""
        start_ray()
        return self.resources(ray.nodes())[0]

    def resources(self, nodes: Sequence[Any]) -> tuple[int, dict[str, float]]:
        """Return the number of copies, and what Ray reserves for each, on ``ray.nodes()``.

        Raises:
            InputError: if the cluster has no room for them.
        """
        alive = [node["Resources"] for node in nodes if node["Alive"]]
        gpus = self.gpus
        if gpus is None:
            gpus = int(any(node.get("GPU", 0) for node in alive))
        if gpus:
            need = gpus * self.gpu_fraction
            room = sum(int(node.get("GPU", 0) / need) for node in alive)
            count = self._count(room, room // self.models, f"place(s) with {need:g} GPU(s)")
            return count, {"num_gpus": need, "num_cpus": self.gpu_fraction}
        cores = [int(node.get("CPU", 0)) for node in alive]
        count = self._count(int(sum(cores) / self.gpu_fraction), len(cores), "CPUs")
        each = math.ceil(count * self.models / len(cores))  # copies on a node
        return count, {"num_gpus": 0, "num_cpus": min(cores) // each or self.gpu_fraction}

    def _count(self, room: int, default: int, unit: str) -> int:
        count = self.actors or default
        if not 1 <= count * self.models <= room:
            field, value = ("actors", count) if self.actors else ("engine", "ray")
            raise InputError(
                f"{self.models} model(s) in {max(1, count)} copies each need more than the {room} "
                f"{unit} of the Ray cluster. Use fewer actors, add nodes to it, or take another "
                "engine.",
                field=field,
                value=value,
            )
        return count


class ReplicaPool(StreamingSampler):
    """A sampler or a scorer whose copies share every batch.

    Each copy is an actor that loads the engine when it is first called: ``load`` travels to it.
    One that is done with a run of items takes the next, so the quick do what the slow leave. Runs
    are the shorter the less is left (guided self-scheduling, Polychronopoulos & Kuck 1987). For one
    that died another is started, and what it owed is done by whoever is free.

    Args:
        batch: Prompts of a run at most.
    """

    def __init__(
        self, model: ModelRef, load: Callable[[], Any], placement: Placement, batch: int
    ) -> None:
        self.model, self._batch = model, batch
        start_ray()
        count, resources = placement.resources(ray.nodes())
        self._start = partial(ray.remote(**resources)(_Replica).remote, load)
        self._actors = [self._start() for _ in range(count)]
        # At the end of the process as well: left to themselves, they take their time.
        self._kill = weakref.finalize(self, _kill, self._actors)

    def stream(self, prompts: Sequence[str], spec: SamplingSpec) -> Iterator[PromptResult]:
        """Yield ``spec.n`` completions of each prompt as its copy does; seconds are the copy's."""
        return self._work("sample", self._batch, prompts, spec)

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Score every step of every item; see :class:`fsdpo_data.engines.scorers.Scorer`."""
        found = dict(self._work("score", len(items), items))
        return [found[place] for place in range(len(items))]

    def _work(
        self, method: str, most: int, items: Sequence[Any], *more: Any
    ) -> Iterator[tuple[int, Any]]:
        """Yield the place and the result of every item as copies finish them.

        Neighbours stay together: solutions of one prompt share its computation.

        Raises:
            FsdpoError: that a copy raised.
            Unavailable: if copies died, one after the other, and nothing was done in between.
        """
        owed, self._deaths = list(range(len(items))), 0
        free: list[Any] = []
        least = min(MIN_CHUNK_ITEMS, math.ceil(len(items) / len(self._actors)))
        running: dict[Any, tuple[Any, dict[int, int]]] = {}

        def run(actor: Any, places: Sequence[int]) -> None:
            call = actor.run.options(num_returns="streaming")
            part = [items[place] for place in places]
            running[call.remote(method, part, *more)] = actor, dict(enumerate(places))

        for actor in self._actors:
            run(actor, ())  # it is over when there is room for the copy
        while owed or any(places for _, places in running.values()):
            while owed and free:
                size = min(most, max(least, len(owed) // (2 * len(self._actors))))
                run(free.pop(), owed[:size])
                del owed[:size]
            for call in ray.wait(list(running), fetch_local=False)[0]:
                actor, places = running[call]
                try:
                    place, result = _result(next(call))
                    yield places.pop(place), result
                    self._deaths = 0
                except StopIteration:
                    free.append(running.pop(call)[0])
                except ray.exceptions.RayActorError as error:
                    del running[call]
                    run(self._another(actor, error), ())
                    owed = sorted([*owed, *places.values()])

    def _another(self, dead: Any, error: Exception) -> Any:
        """Start a copy in the place of a dead one."""
        self._deaths += 1
        if self._deaths > MAX_CONSECUTIVE_DEATHS:
            raise engine_error(
                "ray",
                f"a copy of the model died {self._deaths} times in a row "
                f"({str(error).splitlines()[0]}). What was made before is safe: resume the run, if "
                "memory was short with fewer actors or a smaller batch.",
            ) from error
        self._actors[self._actors.index(dead)] = another = self._start()
        return another

    def close(self) -> None:
        """End the copies and give back what they hold."""
        calls = [actor.close.remote() for actor in self._actors]
        ray.wait(
            calls, num_returns=len(calls), timeout=CLOSE_TIMEOUT_SECONDS
        )  # some may be gone, or stuck
        self._kill()


class _Replica:
    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load

    @cached_property
    def _engine(self) -> Any:
        return self._load()

    def run(self, method: str, items: Sequence[Any], *more: Any) -> Iterator[tuple[int, Any]]:
        if items and method == "sample":
            found = stream(self._engine, items, *more)
        else:
            found = enumerate(self._engine.score(items)) if items else ()
        yield from (each for each in found)  # Ray sends to it

    def close(self) -> None:
        if "_engine" in self.__dict__:
            close_engine(self._engine)


def start_ray() -> None:
    """Join the cluster at ``RAY_ADDRESS``, or start one on this machine.

    Raises:
        Unavailable: if ray is not installed, or the cluster does not answer.
    """
    try:
        from ray import is_initialized  # a folder of that name can be imported as well
    except ImportError as error:
        raise engine_error(
            "ray",
            f"Ray cannot be imported ({error}). Install it here and on every node with: "
            f"{install_command('ray')}.",
        ) from error
    if not is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # By itself, Ray would join whatever was last started on this machine, alive or not.
        address = os.environ.get("RAY_ADDRESS") or "local"
        try:
            # Ray itself tries HOST:PORT for minutes. Other addresses are left to it.
            host, _, port = address.rpartition(":")
            if host and port.isdecimal() and "/" not in host:
                socket.create_connection((host, int(port)), timeout=10).close()
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        except (OSError, RuntimeError, ValueError) as error:
            raise engine_error(
                "ray",
                f"no Ray cluster at RAY_ADDRESS={address!r} ({str(error).splitlines()[0]}). Start "
                "one with `ray start --head`, or unset RAY_ADDRESS to use this machine alone.",
            ) from error


def resolve_engine_on_cluster(pick: Callable[..., str], device: str, role: str) -> str:
    """Return the engine that a copy would ``pick`` for itself: the head may be without a GPU.

    Raises:
        Unavailable: if there is no engine where copies run.
    """
    start_ray()
    _, resources = Placement(actors=1, gpus=0 if device == "cpu" else None).resources(ray.nodes())
    probe = ray.remote(**resources | {"num_cpus": 0})(pick)
    picked: str = _result(probe.remote("auto", device, role))
    return picked


def _kill(actors: Sequence[Any]) -> None:
    for actor in actors:
        ray.kill(actor)


def _result(call: Any) -> Any:
    """Return the result of a call; an error of ours is raised as it was there."""
    try:
        return ray.get(call)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, FsdpoError):
            raise error.cause from None
        raise
