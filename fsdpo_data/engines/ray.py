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
from functools import cached_property
from typing import Any

from fsdpo_data.core.errors import FsdpoError, InputError, install
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.registry import engine_error
from fsdpo_data.engines.samplers import Finished, StreamingSampler, release, stream
from fsdpo_data.engines.scorers import SteppedText

RETRIES = 3  #: Times a copy that died is started again, and the call it died in with it.


@dataclass(frozen=True, slots=True)
class Placement:
    """Where copies of a model run."""

    actors: int | None = None  #: How many; as many as there is room for if None.
    gpus: int | None = None  #: GPUs of each, 0 to run on CPUs; by what the cluster has if None.
    models: int = 1  #: Models that share the cluster: each gets its part of the room.

    @property
    def copies(self) -> int:
        """Copies there will be on the cluster, as :meth:`resources` says."""
        return self.resources(start_ray().nodes())[0]

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
            room = sum(int(node.get("GPU", 0)) // gpus for node in alive)
            count = self._count(room, room // self.models, f"place(s) with {gpus} GPU(s)")
            return count, {"num_gpus": gpus, "num_cpus": 1}
        cores = [int(node.get("CPU", 0)) for node in alive]
        count = self._count(sum(cores), len(cores), "CPUs")
        each = math.ceil(count * self.models / len(cores))  # copies on a node
        return count, {"num_gpus": 0, "num_cpus": max(1, min(cores) // each)}

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


class Copies(StreamingSampler):
    """A sampler or a scorer whose copies share every batch.

    Each copy is an actor that loads the engine when it is first called: ``load`` travels to it.
    """

    def __init__(self, model: ModelRef, load: Callable[[], Any], placement: Placement) -> None:
        self.model = model
        ray = start_ray()
        count, resources = placement.resources(ray.nodes())
        actor = ray.remote(max_restarts=RETRIES, max_task_retries=RETRIES, **resources)(_Copy)
        self._actors = [actor.remote(load) for _ in range(count)]
        # At the end of the process as well: left to themselves, they take their time.
        self._kill = weakref.finalize(self, _kill, self._actors)

    def spread(self, method: str, items: Sequence[Any], *more: Any) -> list[Any]:
        """Call a method of every copy with its part of the items; return all results in order.

        Neighbours stay together: solutions of one prompt share its computation.

        Raises:
            FsdpoError: that a copy raised.
            Unavailable: if a copy died more often than it is started again.
        """
        size = self._share(items)
        parts = [items[start : start + size] for start in range(0, len(items), size)]
        calls = [
            actor.call.remote(method, part, *more)
            for actor, part in zip(self._actors, parts, strict=False)
        ]
        return [result for part in _gather(calls) for result in part]

    def stream(self, prompts: Sequence[str], spec: SamplingSpec) -> Iterator[Finished]:
        """Yield ``spec.n`` completions of each prompt as its copy does; seconds are the copy's."""
        import ray

        size = self._share(prompts)
        waiting = {}
        for actor, start in zip(self._actors, range(0, len(prompts), size), strict=False):
            part = prompts[start : start + size]
            waiting[actor.stream.options(num_returns="streaming").remote(part, spec)] = start
        while waiting:
            for copy in ray.wait(list(waiting), fetch_local=False)[0]:
                try:
                    ((place, completions),) = _gather([next(copy)])
                    yield waiting[copy] + place, completions
                except StopIteration:
                    del waiting[copy]

    def _share(self, items: Sequence[Any]) -> int:
        """Return how many of the items a copy gets."""
        return math.ceil(len(items) / len(self._actors)) or 1

    def score(self, items: Sequence[SteppedText]) -> list[list[float] | None]:
        """Score every step of every item; see :class:`fsdpo_data.engines.scorers.Scorer`."""
        return self.spread("score", items)

    def close(self) -> None:
        """End the copies and give back what they hold."""
        _gather([actor.close.remote() for actor in self._actors])
        self._kill()


class _Copy:
    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load

    @cached_property
    def _engine(self) -> Any:
        return self._load()

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._engine, method)(*arguments)

    def stream(self, prompts: Sequence[str], spec: SamplingSpec) -> Iterator[Finished]:
        yield from stream(self._engine, prompts, spec)

    def close(self) -> None:
        if "_engine" in self.__dict__:
            release(self._engine)


def start_ray() -> Any:
    """Join the cluster at ``RAY_ADDRESS``, or start one on this machine; return the module.

    Raises:
        Unavailable: if ray is not installed, or the cluster does not answer.
    """
    try:
        import ray
        from ray import is_initialized  # a folder of that name can be imported as well
    except ImportError as error:
        raise engine_error(
            "ray",
            f"Ray cannot be imported ({error}). Install it here and on every node with: "
            f"{install('ray')}.",
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
    return ray


def pick_there(pick: Callable[..., str], device: str, role: str) -> str:
    """Return the engine that a copy would ``pick`` for itself: the head may be without a GPU.

    Raises:
        Unavailable: if there is no engine where copies run.
    """
    ray = start_ray()
    _, resources = Placement(actors=1, gpus=0 if device == "cpu" else None).resources(ray.nodes())
    probe = ray.remote(**resources | {"num_cpus": 0})(pick)
    picked: str = _gather([probe.remote("auto", device, role)])[0]
    return picked


def _kill(actors: Sequence[Any]) -> None:
    import ray

    for actor in actors:
        ray.kill(actor)


def _gather(calls: Sequence[Any]) -> list[Any]:
    """Return the results of calls, with errors of ours as they were raised."""
    import ray

    try:
        return list(ray.get(list(calls)))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, FsdpoError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        raise engine_error(
            "ray",
            f"a copy of the model died {RETRIES + 1} times ({str(error).splitlines()[0]}). What "
            "was made before is safe: resume the run, if memory was short with fewer actors or a "
            "smaller batch.",
        ) from error
