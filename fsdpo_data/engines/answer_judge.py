"""The options of a judge of undecided answers, from a command or a file, and its settings."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from fsdpo_data.core.command_line import command_parameters, make_options
from fsdpo_data.core.errors import InputError, suggest_names
from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.identity import EngineRef, ModelRef
from fsdpo_data.core.input_files import read_toml_file
from fsdpo_data.core.options import Group, Option, Options
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.models.prompts import TemplateRef

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
#: Keys of that file with paths, which are relative to the file.
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
    judge_engine: Annotated[
        SamplerOptions,
        Option(has_flag=False),
        Group(without=("actors", "gpus_per_actor", "batch_size")),
    ] = SamplerOptions()
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
    parameters = command_parameters(AnswerJudgeOptions, with_hidden=True)
    names_by_key = {_KEYS.get(name, name): name for name in parameters}
    try:
        table = read_toml_file(file)
    except OSError as error:
        raise InputError(
            f"the file cannot be read: {error.strerror}.", field="judge", value=str(file)
        ) from None
    for key in table:
        if key not in names_by_key:
            raise InputError(
                f"{file}: {key} is no key of a judge.{suggest_names(key, names_by_key)} Expected "
                f"{', '.join(names_by_key)}."
            )
    if str(table.get("model", _FILE_SUFFIX)).endswith(_FILE_SUFFIX):
        raise InputError(f"{file}: expected the key model, with the name of a model.")
    for key in _PATH_KEYS & table.keys():
        if key != "format" or str(table[key]).endswith(_FILE_SUFFIX):
            table[key] = str(file.parent / str(table[key]))
    values = {names_by_key[key]: value for key, value in table.items()}
    try:
        return make_options(AnswerJudgeOptions, values, with_hidden=True)
    except InputError as error:
        raise error_in_judge_file(file, error) from None


def error_in_judge_file(file: Path, error: InputError) -> InputError:
    """Return an error about the options of a judge with the keys of its file."""
    parameters = command_parameters(AnswerJudgeOptions, with_hidden=True)
    name = error.field.rpartition(".")[2]
    location = f"{_KEYS.get(name, name)} = {error.value!r}: " if name else ""
    return InputError(f"{file}: {location}{_with_keys(error.message, parameters)}")


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
