"""Options of the command line to specs and samplers: the glue of ``fsdpo-data build``."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.models.resolve import ResolvedModel

if TYPE_CHECKING:
    from fsdpo_data.engines.ray import Placement


class EngineOptions(Protocol):
    """The options that say how a sampler runs."""

    @property
    def engine(self) -> str:
        """As asked for, ``auto`` and ``ray`` included."""

    @property
    def actors(self) -> int | None:
        """Copies of the model under Ray."""

    @property
    def replay(self) -> Path | None:
        """Recorded completions, for ``--engine scripted``."""

    @property
    def device(self) -> str:
        """Where the transformers engine runs."""

    @property
    def dtype(self) -> str:
        """Precision of the weights."""

    @property
    def engine_args(self) -> Mapping[str, Any]:
        """Passed on to vLLM."""


def make_sampler(
    engine: str, model: ResolvedModel, options: EngineOptions, models: int = 1
) -> Sampler:
    """Load the engine, here or, with ``--engine ray``, as often as the cluster has room for it.

    Args:
        engine: What samples: ``vllm``, ``transformers`` or ``scripted``.
        model: Its weights.
        options: How it runs.
        models: Models that share the cluster.

    Raises:
        InputError: if the cluster has no room for it.
        Unavailable: if its library, a GPU or the weights are not here.
    """
    if options.engine != "ray":
        return load_sampler(engine, model, options)
    from fsdpo_data.engines.ray import RaySampler

    load = partial(load_sampler, engine, model, options)
    return RaySampler(model.ref, load, _placement(options, models))


def copies(options: EngineOptions, models: int = 1) -> int:
    """Return how many copies of the model share a batch: one, but for ``--engine ray``.

    Raises:
        InputError: if the cluster has no room for as many as are asked for.
        Unavailable: if there is no cluster.
    """
    if options.engine != "ray":
        return 1
    from fsdpo_data.engines.ray import start_ray

    return _placement(options, models).resources(start_ray().nodes())[0]


def _placement(options: EngineOptions, models: int) -> Placement:
    from fsdpo_data.engines.ray import Placement

    sizes = ("tensor_parallel_size", "pipeline_parallel_size")
    gpus: int | None = math.prod(options.engine_args.get(size, 1) for size in sizes)
    if options.device == "cpu":
        gpus = 0
    elif gpus == 1:
        gpus = None  # one, or none where the cluster has none
    return Placement(options.actors, gpus, models)


def load_sampler(engine: str, model: ResolvedModel, options: EngineOptions) -> Sampler:
    """Load the engine into this process.

    Raises:
        Unavailable: if its library, a GPU or the weights are not here.
    """
    # One tokenizer thread: prompts are few, and the warning about forks is for nobody.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if options.replay is not None:
        from fsdpo_data.engines.samplers.scripted import ScriptedSampler

        return ScriptedSampler(options.replay, model.ref)
    if engine == "vllm":
        from fsdpo_data.engines.samplers.vllm import VllmSampler

        return VllmSampler(
            model.path,
            model.ref,
            revision=model.commit,
            dtype=options.dtype,
            engine_args=options.engine_args,
        )
    from fsdpo_data.engines.samplers.transformers import TransformersSampler

    return TransformersSampler(
        model.path, model.ref, revision=model.commit, device=options.device, dtype=options.dtype
    )
