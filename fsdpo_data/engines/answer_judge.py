"""The judge of undecided answers: its options, its model and its format."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from fsdpo_data.core.command_line import command_parameters, make_options
from fsdpo_data.core.entities import JUDGE_RULE_PREFIX
from fsdpo_data.core.errors import FsdpoError, InputError, suggest_names
from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.identity import EngineRef, ModelRef
from fsdpo_data.core.input_files import read_toml_file
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.answer_judge_formats import (
    AnswerJudgeFormat,
    JudgeQuestion,
    add_prompt,
    find_answer_judge_format,
    get_answer_judge_format,
)
from fsdpo_data.engines.choose_engine import EngineSelection, select_sampler
from fsdpo_data.engines.load import load_selected_sampler
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.engines.weights import resolve_judge
from fsdpo_data.models.prompts import Template, TemplateRef
from fsdpo_data.models.resolve import ResolvedModel

_PANEL = "Judge"
#: A field in a message, in backquotes, such as `engine=openai`.
_QUOTED_FIELD = re.compile(r"`(\w+)(=[^`]+)?`")
_FILE_SUFFIX = ".toml"  #: Suffix of judge files.
#: Keys of a judge file that differ from the names of the options.
_KEYS = {
    "judge": "model",
    "judge_format": "format",
    "judge_prompt": "prompt",
    "judge_max_tokens": "max_tokens",
}
#: Options of the engine that a judge file does not have.
_UNUSED_ENGINE_OPTIONS = ("actors", "gpus_per_actor", "batch_size")
#: Keys of a judge file with paths, which are relative to the file.
_PATH_KEYS = {"format", "prompt", "replay"}


class AnswerJudgeOptions(Options):
    """Options of a judge that decides the answers which the grader leaves undecided."""

    judge: Annotated[str | None, Option(panel=_PANEL, metavar="MODEL|FILE.toml")] = None
    """Model that decides the answers that the grader leaves undecided. It is a short name,
    `org/name[@revision]` on the Hub, or a directory. Verdicts of the grader stay. For a server, or
    another prompt, give a TOML file with the key ``model``, and with ``engine``, ``base_url``,
    ``api``, ``format``, ``prompt``, ``max_tokens`` and others (docs/howto/judge.md).
    """
    judge_format: Annotated[str | None, Option(has_flag=False)] = None
    """Prompt of the judge, and the way its replies are read: `chat`, `xverify`, `compassverifier`,
    `compassverifier-cot`, or your own TOML file. By default, the name of the model decides.
    """
    judge_prompt: Annotated[Path | None, Option(has_flag=False)] = None
    """Text file with the prompt of the authors, for formats without a prompt of their own."""
    judge_max_tokens: Annotated[int | None, Field(ge=1), Option(has_flag=False)] = None
    """Maximum number of tokens per reply. By default, the format decides."""
    judge_engine: Annotated[SamplerOptions, Option(has_flag=False)] = SamplerOptions()
    """Engine that runs the judge."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        if self.judge is not None and not self.has_judge_file:
            self.judge_engine.check_model_options()
            return
        for name, info in AnswerJudgeOptions.model_fields.items():
            if name == "judge" or getattr(self, name) == info.default:
                continue
            message = "the option needs a judge. Name its model with `judge`, or remove it."
            if self.has_judge_file:
                message = f"{self.judge} has all settings of the judge. Remove the option."
            raise self.field_error(name, message)

    @property
    def has_judge_file(self) -> bool:
        """Whether the settings of the judge are in a TOML file."""
        return self.judge is not None and self.judge.endswith(_FILE_SUFFIX)


def read_judge_file(file: Path) -> AnswerJudgeOptions:
    """Return the options of a judge in a TOML file.

    Raises:
        InputError: if the file cannot be read, or has an unknown key or an unusable value.
    """
    keys = _judge_file_keys()
    try:
        table = read_toml_file(file)
    except OSError as error:
        raise InputError(
            f"the file cannot be read: {error.strerror}.", field="judge", value=str(file)
        ) from None
    for key in table:
        if key not in keys:
            raise InputError(
                f"{file}: {key} is no key of a judge.{suggest_names(key, keys)} Expected "
                f"{', '.join(keys)}."
            )
    if str(table.get("model", _FILE_SUFFIX)).endswith(_FILE_SUFFIX):
        raise InputError(f"{file}: expected the key model, with the name of a model.")
    for key in _PATH_KEYS & table.keys():
        if key != "format" or str(table[key]).endswith(_FILE_SUFFIX):
            table[key] = str(file.parent / str(table[key]))
    values = {name: table.pop(key) for name, key in _KEYS.items() if key in table}
    try:
        return AnswerJudgeOptions(**values, judge_engine=make_options(SamplerOptions, table))
    except InputError as error:
        raise _error_in_file(file, error) from None


def _judge_file_keys() -> list[str]:
    """Return the keys of a judge file: those of the judge, then options of its engine."""
    engine_options = command_parameters(SamplerOptions)
    return [*_KEYS.values(), *(key for key in engine_options if key not in _UNUSED_ENGINE_OPTIONS)]


def _error_in_file(file: Path, error: InputError) -> InputError:
    """Return an error about the options of a judge with the keys of its file."""
    names = [*_KEYS, *_judge_file_keys()]
    name = error.field.rpartition(".")[2]
    location = f"{_KEYS.get(name, name)} = {error.value!r}: " if name else ""
    return InputError(f"{file}: {location}{_with_keys(error.message, names)}")


def _with_keys(message: str, names: Collection[str]) -> str:
    """Return a message in which keys of a judge file replace quoted fields."""

    def replace_field(match: re.Match[str]) -> str:
        name, value = match[1], match[2] or ""
        return f"{_KEYS.get(name, name)}{value}" if name in names else match[0]

    return _QUOTED_FIELD.sub(replace_field, message)


class AnswerJudgeSettings(FileModel):
    """Everything that decides the verdicts of a judge of undecided answers."""

    model: ModelRef  #: The model.
    format: str  #: Name of its prompt and of the way in which its replies are read.
    format_digest: str  #: Digest of the fields of the format that decide the verdicts.
    prompt_sha256: str  #: SHA-256 of the prompt, before values replace the names in braces.
    template: TemplateRef  #: The prompt template.
    sampling: SamplingSpec  #: The sampling settings of a reply.
    engine: EngineRef  #: The engine.


@dataclass(frozen=True)
class AnswerJudge:
    """A judge of undecided answers, whose model is resolved and not loaded."""

    model: ModelRef  #: The model of the judge.
    judge_format: AnswerJudgeFormat  #: Its prompt, and how its replies are read.
    template: Template  #: The prompt template.
    sampling: SamplingSpec  #: Sampling settings of a reply; ``n`` is 1.
    engine: EngineRef  #: The engine that runs the model.
    #: Loads the sampler. Called only if replies are missing, because loading a model is slow.
    make_sampler: Callable[[], Sampler]
    batch_size: int = 256  #: Prompts per call of the sampler.
    #: Whether the sampler stays loaded after a session, because another session uses it.
    keeps_engine: bool = False

    @property
    def settings(self) -> AnswerJudgeSettings:
        """Everything that decides the verdicts."""
        return AnswerJudgeSettings(
            model=self.model,
            format=self.judge_format.name,
            format_digest=self.judge_format.digest,
            prompt_sha256=self.judge_format.prompt_digest,
            template=self.template.ref,
            sampling=self.sampling,
            engine=self.engine,
        )

    @property
    def rule(self) -> str:
        """The rule of a verdict by this judge, such as ``judge/xVerify-8B-I@0d2f…``."""
        return f"{JUDGE_RULE_PREFIX}{self.model.name}@{self.model.revision}"

    @property
    def special_tokens(self) -> Collection[str]:
        """The special tokens of the judge's tokenizer.

        Empty if a server has the tokenizer, or the template is not a chat template.
        """
        chat = self.template.chat
        return () if chat is None else tuple(chat.tokenizer.all_special_tokens)

    def prompts(self, items: Sequence[JudgeQuestion]) -> list[str]:
        """Return the prompts for answers."""
        special_tokens = self.special_tokens
        return [
            self.template.render(self.judge_format.render(item, special_tokens)) for item in items
        ]


def resolve_answer_judge(options: AnswerJudgeOptions) -> AnswerJudge | None:
    """Resolve the judge of options; None without a judge.

    Raises:
        InputError: if the model, the format or its prompt does not exist, or the file of the judge
            cannot be used.
        UnavailableError: if the engine is not installed, or the Hub cannot be reached.
    """
    if options.judge is None:
        return None
    if not options.has_judge_file:
        return _resolve_named_judge(options, options.judge)
    file = Path(options.judge).expanduser()
    options = read_judge_file(file)
    try:
        return _resolve_named_judge(options, str(options.judge))
    except InputError as error:
        raise _error_in_file(file, error) from None


def _resolve_named_judge(options: AnswerJudgeOptions, name: str) -> AnswerJudge:
    """Resolve the judge whose model has this name."""
    if options.judge_format is None:
        judge_format = find_answer_judge_format(name.partition("@")[0].rstrip("/"))
    else:
        judge_format = get_answer_judge_format(options.judge_format)
    judge_format = add_prompt(judge_format, options.judge_prompt)
    try:
        model = resolve_judge(name, options.judge_engine, judge_format.template)
        selection = select_sampler(options.judge_engine)
    except FsdpoError as error:
        raise _judge_error(error) from None
    sampling = SamplingSpec(
        n=1,
        temperature=judge_format.temperature,
        top_p=judge_format.top_p,
        max_tokens=options.judge_max_tokens or judge_format.max_tokens,
        stop=model.template.stop,
    )
    return AnswerJudge(
        model=model.ref,
        judge_format=judge_format,
        template=model.template,
        sampling=sampling,
        engine=selection.ref,
        make_sampler=lambda: _load_judge(selection, model),
        batch_size=selection.batch_size,
    )


def _load_judge(selection: EngineSelection, model: ResolvedModel) -> Sampler:
    """Load the sampler of a judge; errors name the options of the judge."""
    try:
        return load_selected_sampler(selection, model)
    except FsdpoError as error:
        raise _judge_error(error) from None


def _judge_error(error: FsdpoError) -> FsdpoError:
    """Return an error about the model or the engine of a judge with the options of the judge."""
    name = error.field.rpartition(".")[2]
    if name in ("model", "template", "prm"):
        return error.for_field("judge")
    return error.for_field(f"judge_engine.{name}")
