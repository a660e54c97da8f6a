"""How engines run, as asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.options import Option, Options
from fsdpo_data.engines.registry import EngineName, ScorerName

_PLACE = "Where and how it runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions(Options):
    """How a model runs, whatever it does.

    Attributes:
        engine: What runs the model: `auto` takes vLLM where it can run, else transformers; `ray`
            is `auto` on every GPU of a Ray cluster (`RAY_ADDRESS`, else this machine).
        actors: Copies of the model for `ray`; all that fit if None.
        device: For `transformers`; `auto` takes a GPU where there is one.
        dtype: Precision of the weights; `auto` is the checkpoint's own.
        engine_arg: KEY=JSON passed on to `vllm.LLM`; may be given several times.

    Raises:
        InputError: if options do not go together.
    """

    engine: EngineName = "auto"
    actors: Annotated[int | None, Option(panel=_PLACE, min=1, default="all that fit")] = None
    device: Annotated[Literal["auto", "cpu", "cuda"], Option(panel=_PLACE)] = "auto"
    dtype: Annotated[Literal["auto", "float32", "bfloat16", "float16"], Option(panel=_PLACE)] = (
        "auto"
    )
    engine_arg: Annotated[Sequence[str], Option(panel=_PLACE)] = ()

    def __post_init__(self) -> None:
        super(EngineOptions, self).__post_init__()
        if self.actors is not None and not self.on_cluster:
            raise InputError(
                f"goes with the engine ray, not {self.engine}.",
                field=f"{type(self).__name__}.actors",
                value=self.actors,
            )
        copies = self.engine_args.get("data_parallel_size", 1)
        if self.on_cluster and copies != 1:
            raise InputError(
                f"the engine ray counts copies as actors: expected actors = {copies}.",
                field=f"{type(self).__name__}.data_parallel_size",
                value=copies,
            )

    @property
    def on_cluster(self) -> bool:
        """Whether copies of the model share a Ray cluster, each with GPUs of its own."""
        return self.engine == "ray"

    @property
    def engine_args(self) -> dict[str, Any]:
        """What vLLM is asked for.

        Raises:
            InputError: for an argument that is not KEY=VALUE.
        """
        return dict(map(_argument, self.engine_arg))


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerOptions(EngineOptions):
    """How a sampler runs.

    Attributes:
        replay: Recorded completions, for `scripted`.
        batch: Prompts per durable batch; by engine if None.
        workers: Processes that grade; the cores at hand if None.
        seed: Sample i depends on seed, prompt, i.
        resume: Whether to go on with a run that is there.
    """

    replay: Annotated[Path | None, Option(panel=_PLACE)] = None
    batch: Annotated[int | None, Option(panel=_PLACE, min=1, default="by engine")] = None
    workers: Annotated[int | None, Option(panel=_PLACE, min=1, default="the cores at hand")] = None
    seed: int = 0
    resume: bool = False

    def __post_init__(self) -> None:
        super(SamplerOptions, self).__post_init__()
        if (self.engine == "scripted") != (self.replay is not None):
            field = "engine" if self.replay is None else "replay"
            raise InputError(
                "the engine scripted and a file to replay go together; give both or neither.",
                field=f"{type(self).__name__}.{field}",
                value=getattr(self, field),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerOptions(EngineOptions):
    """How a scorer runs.

    Attributes:
        batch_tokens: Tokens of a batch, padding included, for `transformers`.
    """

    engine: ScorerName = "auto"
    batch_tokens: Annotated[int, Option(panel=_PLACE, min=1)] = 16_384


def _argument(pair: str) -> tuple[str, Any]:
    key, equals, value = pair.partition("=")
    if not equals or not key.isidentifier():
        raise InputError(
            "expected KEY=VALUE, e.g. max_model_len=4096.", field="engine_arg", value=pair
        )
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value  # plain words need no quotes
