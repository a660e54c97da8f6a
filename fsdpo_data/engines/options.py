"""How engines run, as asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerOptions:
    """How a sampler runs.

    Attributes:
        engine: ``auto``, ``vllm``, ``transformers``, ``ray`` or ``scripted``.
        actors: Copies of the model under Ray; all that fit if None.
        replay: Recorded completions, for ``scripted``.
        device: Where the transformers engine runs.
        dtype: Precision of the weights.
        engine_arg: KEY=VALUE passed on to vLLM.
        batch: Prompts per durable batch; by engine if None.
        workers: Processes that grade; the cores at hand if None.
        seed: Sample i depends on seed, prompt, i.
        resume: Whether to go on with a run that is there.

    Raises:
        InputError: if a number makes no sense, or options do not go together.
    """

    engine: str = "auto"
    actors: int | None = None
    replay: Path | None = None
    device: str = "auto"
    dtype: str = "auto"
    engine_arg: Sequence[str] = ()
    batch: int | None = None
    workers: int | None = None
    seed: int = 0
    resume: bool = False

    def __post_init__(self) -> None:
        for name, value in (("batch", self.batch), ("workers", self.workers)):
            if value is not None and value < 1:
                raise InputError(f"--{name} {value}: expected at least 1.")
        if (self.engine == "scripted") != (self.replay is not None):
            raise InputError(
                "--engine scripted and --replay FILE go together; give both or neither."
            )
        check_actors(self.engine, self.actors)
        copies = self.engine_args.get("data_parallel_size", 1)
        if self.engine == "ray" and copies != 1:
            raise InputError(
                f"data_parallel_size={copies}: with --engine ray, say --actors {copies}."
            )

    @property
    def engine_args(self) -> dict[str, Any]:
        """Return what vLLM is asked for."""
        return engine_arguments(self.engine_arg)


def check_actors(engine: str, actors: int | None) -> None:
    """Refuse a number of copies that cannot be.

    Raises:
        InputError: saying why.
    """
    if actors is None:
        return
    if actors < 1:
        raise InputError(f"--actors {actors}: expected at least 1.")
    if engine != "ray":
        raise InputError(f"--actors {actors} goes with --engine ray, not --engine {engine}.")


def engine_arguments(pairs: Sequence[str]) -> dict[str, Any]:
    """Return what ``--engine-arg`` asks vLLM for.

    Raises:
        InputError: for an argument that is not KEY=VALUE.
    """
    arguments: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise InputError(f"--engine-arg {pair}: expected KEY=VALUE, e.g. max_model_len=4096.")
        try:
            arguments[key] = json.loads(value)
        except ValueError:
            arguments[key] = value  # plain words need no quotes
    return arguments
