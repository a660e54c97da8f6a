"""Options of engines, declared once for all commands that run a model."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from fsdpo_data.core.command_line import check_read_options
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.failures import DEFAULT_MAX_FAILED, FailurePolicy, parse_max_failed
from fsdpo_data.core.input_files import parse_json
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.sampling import UNKNOWN, DeclaredSampling, SamplingSpec
from fsdpo_data.engines.registry import (
    SAMPLERS,
    SCORERS,
    EngineEntry,
    EngineName,
    SamplerEntry,
    ScorerEntry,
    ScorerName,
)

# Headings of `--help`.
_ENGINE_PANEL = "Engine"
_RUN_PANEL = "Run"
_SERVER_PANEL = "Server"

IMPLICIT_REWARD_BETA = 0.05  #: Default factor β of the log-ratio in an implicit reward.
DEFAULT_MODEL = "tiny"  #: Model of commands without the option ``model``.
#: A server address without user, password or query, because secrets belong in the environment.
_SERVER_URL = re.compile(r"https?://[^/@?#\s]+(/[^@?#\s]*)?")
#: Sampling settings that may be known of recorded completions.
_RECORDED_SETTINGS = tuple(DeclaredSampling.model_fields)
#: Engine arguments that decide the number of replicas and their GPUs, whichever engine runs.
_PARALLEL_SIZES = {"data_parallel_size", "tensor_parallel_size", "pipeline_parallel_size"}
#: Fields of a request that follow from the problems and from other options.
_OWN_REQUEST_FIELDS = {
    "chat_template_kwargs",
    "max_tokens",
    "model",
    "n",
    "prompt",
    "seed",
    "stop",
    "stream",
    "temperature",
    "top_p",
}
_Dtype = Literal["auto", "float32", "bfloat16", "float16"]

Workers = Annotated[
    int | None,
    Field(ge=1),
    Option(panel=_RUN_PANEL, default_text="all CPU cores", in_digest=False),
]
Shard = Annotated[
    str | None,
    Option(panel=_RUN_PANEL, metavar="I/N", default_text="the full job", in_digest=False),
]
PrmFormatName = Annotated[
    str | None, Option(panel=_ENGINE_PANEL, default_text="detected from the model")
]
Resume = Annotated[bool, Option(panel=_RUN_PANEL, in_digest=False)]


class FailureOptions(Options):
    """Options of a command that goes on after items that its engine refuses."""

    max_failed: Annotated[str, Option(panel=_RUN_PANEL, metavar="N%", in_digest=False)] = (
        DEFAULT_MAX_FAILED
    )
    """Largest percentage of prompts or solutions that may fail, such as prompts that are too long
    for the server. If more fail, the command stops; with `0`, at the first failure. Failed ones are
    left out, `failures.jsonl` has the reasons, and `--resume` tries them again.
    """
    retry_failed: Annotated[bool, Option(has_flag=False, in_digest=False)] = True
    """Whether a resumed run tries failed items again."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        try:
            parse_max_failed(self.max_failed)
        except ValueError as error:
            raise self.field_error("max_failed", f"{error}.") from None

    @property
    def failure_policy(self) -> FailurePolicy:
        """The number of failed items at which the command stops."""
        return FailurePolicy(self.max_failed, self.retry_failed)


def _check_own_options(
    engine: str, entries: Sequence[EngineEntry], own_values: Mapping[str, object]
) -> None:
    """Raise InputError unless exactly the engine that needs an option has it.

    Args:
        engine: Name of the engine.
        entries: The engines.
        own_values: The values of the options that one engine needs, by name; None without a value.
    """
    for entry in entries:
        name = entry.own_option.partition("=")[0]
        if name in own_values and (engine == entry.name) != (own_values[name] is not None):
            raise InputError(
                f"`engine={entry.name}` and `{entry.own_option}` need each other. Give both or "
                "neither."
            )


def check_engine_options(options: Options, engine: EngineEntry, *names: str) -> None:
    """Check that the options that the engine does not read have their defaults.

    Args:
        options: Options, whose fields include options that only some engines read.
        engine: The engine.
        names: Fields to check; all fields by default.

    Raises:
        InputError: if one has another value; it names the engines that read it.
    """
    entries: list[EngineEntry] = [*SAMPLERS.loaded_entries(), engine]
    read_options = {
        entry.name: [option for option in entry.options if not names or option in names]
        for entry in entries
    }
    check_read_options(options, "engine", [engine.name], read_options)


class EngineOptions(Options):
    """Options of every engine, for sampling and for scoring.

    Raises:
        InputError: if two options contradict each other.
    """

    engine: Annotated[EngineName, Option(panel=_ENGINE_PANEL)] = "auto"
    """Backend that runs the model. `auto` takes vLLM if it can run, else transformers. Scorers use
    transformers without a GPU and for published reward models. `ray` runs a replica of the `auto`
    engine on every GPU of a Ray cluster (address in `RAY_ADDRESS`; default: this machine).
    """
    actors: Annotated[
        int | None,
        Field(ge=1),
        Option(panel=_ENGINE_PANEL, default_text="all that fit", in_digest=False),
    ] = None
    """For `ray`: maximum number of replicas of the model, which must fit at the start."""
    device: Annotated[
        Literal["auto", "cpu", "cuda"], Option(panel=_ENGINE_PANEL, in_digest=False)
    ] = "auto"
    """For `transformers`: device of the model; `auto` takes a GPU if there is one."""
    dtype: Annotated[_Dtype, Option(panel=_ENGINE_PANEL)] = "auto"
    """Data type of the weights. `auto` keeps the data type of the checkpoint, but takes float32 in
    place of bfloat16 on CPUs without instructions for bfloat16.
    """
    engine_arg: Annotated[
        Sequence[str], Option(panel=_ENGINE_PANEL, metavar="KEY=JSON", in_digest=False)
    ] = ()
    """For `vllm`: an argument of `vllm.LLM`, e.g. max_model_len=4096; may be repeated."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        if self.actors is not None and not self.uses_ray:
            raise self.field_error(
                "actors",
                f"the option needs `engine=ray`, but the engine is {self.engine}. Ray runs "
                "replicas of vllm or transformers; other engines run in one process.",
            )
        if {*self.engine_args} - _PARALLEL_SIZES:
            check_engine_options(self, self.engine_entry, "engine_arg")
        replica_count = self.engine_args.get("data_parallel_size", 1)
        if self.uses_ray and replica_count != 1:
            raise InputError(
                f"`engine=ray` starts one actor per replica. Use `actors={replica_count}` instead.",
                field=f"{type(self).__name__}.engine_arg",
                value=f"data_parallel_size={replica_count}",
            )

    @property
    def uses_ray(self) -> bool:
        """Whether replicas of the model run on a Ray cluster, each with its own GPUs."""
        return self.engine_entry.is_cluster

    @property
    def engine_entry(self) -> EngineEntry:
        """The registration of the engine."""
        return SAMPLERS[self.engine]

    @property
    def engine_args(self) -> dict[str, Any]:
        """The arguments of ``vllm.LLM`` that ``engine_arg`` lists, parsed.

        Raises:
            InputError: if an argument does not have the form KEY=VALUE.
        """
        return _parse_arguments("engine_arg", self.engine_arg, "max_model_len=4096")


def _parse_arguments(field: str, pairs: Sequence[str], example: str) -> dict[str, Any]:
    """Return the values of an option with KEY=JSON; an InputError for another form."""
    arguments: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise InputError(f"expected KEY=VALUE, e.g. {example}.", field=field, value=pair)
        try:
            arguments[key] = parse_json(value)
        except ValueError:
            arguments[key] = value  # plain words need no quotes
    return arguments


class ConnectionOptions(Options):
    """Options of the connection to a model server, for the engine `openai`."""

    base_url: Annotated[
        str | None,
        Option(panel=_SERVER_PANEL, metavar="URL"),
    ] = None
    """For `openai`: address of the server, e.g. http://localhost:8000/v1. The API key, if the
    server needs one, is in `OPENAI_API_KEY`.
    """
    concurrency: Annotated[int, Field(ge=1), Option(panel=_SERVER_PANEL, in_digest=False)] = 64
    """For `openai`: maximum number of simultaneous requests."""
    timeout: Annotated[float, Option(panel=_SERVER_PANEL, in_digest=False)] = 1800.0
    """For `openai`: seconds to wait for the response to one request; then the request is repeated.
    """

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        if self.base_url is not None and not _SERVER_URL.fullmatch(self.base_url):
            raise InputError(
                "expected http://HOST:PORT/v1 or https://HOST/v1, without a user or a key. Put "
                "the key into OPENAI_API_KEY.",
                field=f"{type(self).__name__}.base_url",
                value=self.base_url.rpartition("@")[2],  # hides a password
            )


class ServerOptions(ConnectionOptions):
    """Options of a server that samples, for the engine `openai`."""

    api: Annotated[Literal["completions", "chat"], Option(panel=_SERVER_PANEL)] = "completions"
    """For `openai`: endpoint of the server. `completions` sends the rendered prompt; `chat` sends a
    user message, and the server applies its chat template.
    """
    request_field: Annotated[Sequence[str], Option(panel=_SERVER_PANEL, metavar="KEY=JSON")] = ()
    """For `openai`: a field of every request, e.g. top_k=20; may be repeated. With `chat`, the
    field `messages` has the messages before the question, such as a system message.
    """

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        for name in self.request_fields:
            is_own_field = name in _OWN_REQUEST_FIELDS
            if is_own_field or (name == "messages" and self.api != "chat"):
                raise self.field_error(
                    "request_field",
                    f"the field {name} follows from the problems and from other options. Set "
                    "those.",
                )
        messages = self.request_fields.get("messages", [])
        if not (isinstance(messages, list) and all(isinstance(item, dict) for item in messages)):
            raise self.field_error(
                "request_field",
                'expected a list of messages, e.g. messages=[{"role": "system", "content": "…"}].',
            )

    @property
    def request_fields(self) -> dict[str, Any]:
        """The fields that ``request_field`` lists, parsed."""
        return _parse_arguments("request_field", self.request_field, "top_k=20")


class SamplerOptions(EngineOptions):
    """Options of a sampler."""

    replay: Annotated[str | Path | None, Option(panel=_ENGINE_PANEL, metavar="FILE")] = None
    """With `engine=replay`: JSONL file with recorded completions, such as the completions.jsonl of
    an earlier run. No model runs.
    """
    batch_size: Annotated[
        int | None, Field(ge=1), Option(panel=_RUN_PANEL, default_text="by engine", in_digest=False)
    ] = None
    """Prompts per batch."""
    template_arg: Annotated[Sequence[str], Option(panel=_ENGINE_PANEL, metavar="KEY=JSON")] = ()
    """Keyword argument of the chat template, e.g. enable_thinking=false; may be repeated. A server
    with `--api chat` gets it as `chat_template_kwargs`.
    """
    server: ServerOptions = ServerOptions()
    """The server of the engine `openai`."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        own_values = {"replay": self.replay, "base_url": self.server.base_url}
        _check_own_options(self.engine, SAMPLERS.loaded_entries(), own_values)
        check_engine_options(self.server, self.engine_entry)

    @property
    def engine_entry(self) -> SamplerEntry:
        """The registration of the engine."""
        return SAMPLERS[self.engine]

    @property
    def template_args(self) -> dict[str, Any]:
        """The keyword arguments of the chat template, parsed."""
        return _parse_arguments("template_arg", self.template_arg, "enable_thinking=false")

    @property
    def can_continue_text(self) -> bool:
        """Whether the sampler can continue a text that it has started."""
        return self.engine_entry.can_continue(self.server.api)

    def check_model_options(self) -> None:
        """Check that the engine reads the device and the data type, or that both are the defaults.

        A reward model next to the sampler reads them too, so the check is only for samplers without
        one.

        Raises:
            InputError: if the engine, such as a server, does not read an option that is set.
        """
        check_engine_options(self, self.engine_entry, "device", "dtype")

    def scorer_options(self, engine: str, prm_format: str | None) -> "ScorerOptions":
        """Return the options of a reward model that runs next to this sampler.

        The reward model uses the same device, data type and number of replicas. ``engine`` must
        be able to score; see :func:`~fsdpo_data.engines.registry.scorer_engine_for`.
        """
        return ScorerOptions(
            engine=engine,
            prm_format=prm_format,
            device=self.device,
            dtype=self.dtype,
            actors=self.actors,
        )


class ReplayOptions(Options):
    """Options of a command that samples solutions, or replays solutions of another model."""

    model: str | None = None
    """Short name, `org/name[@revision]` on the Hub, or a directory."""
    engine: SamplerOptions = SamplerOptions()
    """Engine that runs the model."""
    model_name: Annotated[str | None, Option(panel=_ENGINE_PANEL, default_text=UNKNOWN)] = None
    """With `engine=replay`: name to record for the model that wrote the completions, if you give no
    `--model`.
    """
    sampling: SamplingSpec = SamplingSpec()
    """Sampling settings."""
    workers: Workers = None
    """Number of processes that grade answers."""
    resume: Resume = False
    """Continue the run in `out`."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        if self.model_name is not None and not self.is_replay:
            raise self.field_error(
                "model_name",
                "a model that runs has its own name; only recorded completions need one. Add "
                "`replay=FILE`, or remove `model_name`.",
            )
        if self.is_replay:
            check_engine_options(self.sampling, self.engine.engine_entry)

    def check_prm_options(self, prm: str | None, prm_format: str | None) -> None:
        """Check that a run without a reward model has no option that only a reward model reads.

        Args:
            prm: The reward model; None without one.
            prm_format: Format of the reward model; None if it is not set.

        Raises:
            InputError: if an option is set that nothing reads.
        """
        if prm is not None:
            return
        if prm_format is not None:
            raise InputError(
                "only a reward model has a PRM format. Give `prm` too, or remove `prm_format`.",
                field=f"{type(self).__name__}.prm_format",
                value=prm_format,
            )
        self.engine.check_model_options()

    @property
    def is_replay(self) -> bool:
        """Whether a file of recorded completions takes the place of a model."""
        return self.engine.replay is not None

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """The sampling settings of a recording that the user did not state, and ``seed``.

        Empty without a recording.
        """
        if not self.is_replay:
            return ()
        stated_names = self.sampling.model_fields_set
        return ("seed", *(name for name in _RECORDED_SETTINGS if name not in stated_names))


class ScorerOptions(EngineOptions):
    """Options of a scorer."""

    engine: Annotated[ScorerName, Option(panel=_ENGINE_PANEL)] = "auto"
    """Backend that runs the reward model. `auto` takes vLLM if it can run on a GPU, else
    transformers. For published reward models it takes transformers, and for judges the engine of a
    policy. `ray` runs a replica of the `auto` engine on every GPU of a Ray cluster (address in
    `RAY_ADDRESS`; default: this machine). `openai` sends the solutions to `vllm serve` at
    `base_url`.
    """
    server: ConnectionOptions = ConnectionOptions()
    """The server of the engine `openai`."""
    batch_tokens: Annotated[int, Field(ge=1), Option(panel=_RUN_PANEL, in_digest=False)] = 16_384
    """Maximum number of tokens per batch, padding included; on CPUs at most 1024."""
    prm_format: PrmFormatName = None
    """Name of the PRM format of a published reward model, or a TOML file that defines one."""
    reference: Annotated[str | None, Option(panel=_ENGINE_PANEL)] = None
    """Reference model of an implicit reward. The reward of a step is `beta` · log π/π_ref over the
    step; with `--prm-format implicit-so-far` over all text up to its end.
    """
    beta: Annotated[
        float | None,
        Field(gt=0),
        Option(panel=_ENGINE_PANEL, default_text=f"{IMPLICIT_REWARD_BETA}"),
    ] = None
    """Factor of the log-ratio in an implicit reward."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        own_values = {"base_url": self.server.base_url}
        _check_own_options(self.engine, SCORERS.loaded_entries(), own_values)
        check_engine_options(self.server, self.engine_entry)
        if self.engine_entry.is_remote:
            check_engine_options(self, self.engine_entry, "device", "dtype")

    @property
    def engine_entry(self) -> ScorerEntry:
        """The registration of the engine."""
        return SCORERS[self.engine]
