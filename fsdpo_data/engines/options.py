"""How engines run: the options that every command with a model has, declared once."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef, file_sha256
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.sampling import UNKNOWN
from fsdpo_data.engines.registry import EngineName, ScorerName

_ENGINE, _RUN, _SERVER = "Engine", "Run", "Server"
#: No user, password or query: what is secret comes from the environment.
_URL = re.compile(r"https?://[^/@?#\s]+(/[^@?#\s]*)?")
#: Fields of a :class:`~fsdpo_data.core.sampling.SamplingSpec` that are options of the same name.
_SAMPLING = ("temperature", "top_p", "max_tokens")
_Dtype = Literal["auto", "float32", "bfloat16", "float16"]

Workers = Annotated[int | None, Option(min=1, panel=_RUN, default_text="the cores at hand")]
Seed = Annotated[int, Option(min=0, max=2**63 - 1, panel=_RUN)]
Shard = Annotated[str | None, Option(panel=_RUN, metavar="I/N", default_text="all of it")]
PrmFormatName = Annotated[
    str | None, Option(panel=_ENGINE, default_text="what it is recognised as")
]
Resume = Annotated[bool, Option(panel=_RUN)]


@dataclass(frozen=True, kw_only=True)
class EngineOptions(Options):
    """How a model runs, whatever it does.

    Attributes:
        engine: What runs the model: `auto` is vLLM where it can run, else transformers, which also
            scores on CPUs; `ray` is `auto` on every GPU of a Ray cluster (`RAY_ADDRESS`, else this
            machine).
        actors: Copies of the model for `ray`.
        gpus_per_actor: Part of a GPU, without GPUs of a core, that each copy for `ray` needs; 0.5 lets
            two share one, and its memory in vLLM.
        device: For `transformers`; `auto` takes a GPU where there is one.
        dtype: Precision of the weights; `auto` is the checkpoint's own.
        engine_arg: Passed on to `vllm.LLM`; may be given several times.

    Raises:
        InputError: if options do not go together.
    """

    engine: Annotated[EngineName, Option(panel=_ENGINE)] = "auto"
    actors: Annotated[int | None, Option(min=1, panel=_ENGINE, default_text="all that fit")] = None
    gpus_per_actor: Annotated[float, Option(exclusive_min=0, max=1, panel=_ENGINE)] = 1.0
    device: Annotated[Literal["auto", "cpu", "cuda"], Option(panel=_ENGINE)] = "auto"
    dtype: Annotated[_Dtype, Option(panel=_ENGINE)] = "auto"
    engine_arg: Annotated[Sequence[str], Option(panel=_ENGINE, metavar="KEY=JSON")] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, default in (("actors", None), ("gpus_per_actor", 1.0)):
            if getattr(self, name) != default and not self.on_cluster:
                raise self.field_error(name, f"it goes with `engine=ray`, not {self.engine}.")
        copies = self.engine_args.get("data_parallel_size", 1)
        if self.on_cluster and copies != 1:
            raise InputError(
                f"`engine=ray` counts copies as actors: expected `actors={copies}`.",
                field=f"{type(self).__name__}.data_parallel_size",
                value=copies,
            )

    @property
    def on_cluster(self) -> bool:
        """Whether copies of the model share a Ray cluster, each with GPUs of its own."""
        return self.engine == "ray"

    @property
    def engine_args(self) -> dict[str, Any]:
        """What vLLM is asked for; InputError for an argument that is not KEY=VALUE."""
        asked: dict[str, Any] = {}
        for pair in self.engine_arg:
            key, equals, value = pair.partition("=")
            if not equals or not key.isidentifier():
                raise InputError(
                    "expected KEY=VALUE, e.g. max_model_len=4096.", field="engine_arg", value=pair
                )
            try:
                asked[key] = json.loads(value)
            except ValueError:
                asked[key] = value  # plain words need no quotes
        return asked


@dataclass(frozen=True, kw_only=True)
class SamplerOptions(EngineOptions):
    """How a sampler runs.

    Attributes:
        replay: Recorded completions, for `replay`.
        base_url: Address of the server for `openai`; its key, if any, is in `OPENAI_API_KEY`.
        api: For `openai`: `chat` leaves the chat template to the server.
        concurrency: For `openai`: requests at a time.
        timeout: For `openai`: seconds until an answer has come.
        idle_timeout: For `openai`: seconds without any answer after which it gives up.
        batch_size: Prompts sampled at a time.
        workers: Processes that grade.
        seed: Sample i depends on seed, prompt and i, and on nothing else.
        resume: Go on with the run in `out`.
    """

    replay: Annotated[str | Path | None, Option(panel=_ENGINE, metavar="FILE")] = None
    base_url: Annotated[str | None, Option(panel=_SERVER, metavar="URL")] = None
    api: Annotated[Literal["completions", "chat"], Option(panel=_SERVER)] = "completions"
    concurrency: Annotated[int, Option(panel=_SERVER, min=1)] = 64
    timeout: Annotated[float, Option(panel=_SERVER)] = 1800.0
    idle_timeout: Annotated[float, Option(panel=_SERVER)] = 600.0
    batch_size: Annotated[int | None, Option(min=1, panel=_RUN, default_text="by engine")] = None
    workers: Workers = None
    seed: Seed = 0
    resume: Resume = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for engine, field, given in (
            ("replay", "replay=FILE", self.replay),
            ("openai", "base_url=URL", self.base_url),
        ):
            if (self.engine == engine) != (given is not None):
                raise InputError(
                    f"`engine={engine}` and `{field}` go together; give both or neither."
                )
        if self.base_url is not None and not _URL.fullmatch(self.base_url):
            raise InputError(
                "expected http://HOST:PORT/v1 or https://HOST/v1, without a key or a user in it.",
                field=f"{type(self).__name__}.base_url",
                value=self.base_url.rpartition("@")[2],
            )

    def scorer_options(self, engine: str, prm_format: str | None) -> "ScorerOptions":
        """Return how a reward model runs beside this sampler, by an engine that scores."""
        same = {
            name: getattr(self, name) for name in ("device", "dtype", "actors", "gpus_per_actor")
        }
        return ScorerOptions(engine=engine, prm_format=prm_format, **same)


class DeclaredSampling:
    """Options that may say how something was sampled that nobody here has sampled."""

    __slots__ = ()

    @property
    def declared_sampling(self) -> dict[str, Any]:
        """Return how to sample, as far as the options say."""
        return {name: value for name in _SAMPLING if (value := getattr(self, name)) is not None}

    @property
    def undeclared_fields(self) -> tuple[str, ...]:
        """Return what they do not say."""
        return ("seed", *(name for name in _SAMPLING if name not in self.declared_sampling))


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(DeclaredSampling, SamplerOptions):
    """How a sampler runs that may replay what another model wrote, sampled as far as is stated.

    Attributes:
        model_name: Who wrote what is replayed, in your words, if no `--model` did.
    """

    model_name: Annotated[str | None, Option(panel=_ENGINE, default_text="unknown")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model_name is not None and self.replay is None:
            raise self.field_error(
                "model_name", "a model is called by its own name. It goes with `replay=FILE`."
            )

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return what a replay does not say of how it was sampled, and nobody has stated."""
        return () if self.replay is None else self.undeclared_fields

    def author(self, model: ModelRef, *, named: bool) -> ModelRef:
        """Return who writes the solutions; of a replay, who wrote them, as far as that is stated.

        It is ``model`` unless that is only a default, and not ``named``.
        """
        if self.replay is None or (named and self.model_name is None):
            return model
        return ModelRef(self.model_name or UNKNOWN, f"sha256:{file_sha256(Path(self.replay))}")

    def author_kind(self, *, named: bool) -> dict[str, str]:
        """Say of a replay that a model wrote it, ``named`` as one: what goes beside the engine.

        The revision of a local model looks like that of a recording.
        """
        own = self.replay is not None and named and self.model_name is None
        return {"author": "model"} if own else {}


@dataclass(frozen=True, kw_only=True)
class ScorerOptions(EngineOptions):
    """How a scorer runs.

    Attributes:
        batch_tokens: Tokens of a batch, padding included; on CPUs at most 1024.
        prm_format: Convention of a published process reward model, or a TOML file that says one.
        reference: Model whose log-probabilities those of a policy are held against: a reward is
            `beta` · log π/π_ref of the step (`--prm-format implicit-so-far`: up to its end).
        beta: What they are multiplied by.
    """

    engine: Annotated[ScorerName, Option(panel=_ENGINE)] = "auto"
    batch_tokens: Annotated[int, Option(panel=_RUN, min=1)] = 16_384
    prm_format: PrmFormatName = None
    reference: Annotated[str | None, Option(panel=_ENGINE)] = None
    beta: Annotated[float | None, Option(panel=_ENGINE, exclusive_min=0, default_text="0.05")] = (
        None
    )
