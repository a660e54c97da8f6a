"""The judge of undecided answers: its option, its file, and its settings."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from fsdpo_data.core.command_line import command_parameters, make_options
from fsdpo_data.core.errors import FsdpoError, InputError, suggest_names
from fsdpo_data.core.input_files import read_toml_file
from fsdpo_data.core.options import Group, Option, Options
from fsdpo_data.core.sampling import ContinuationSettings
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.models.prompts import TemplateRef

#: A field in a message, in backquotes, such as `engine=openai`.
_QUOTED_FIELD = re.compile(r"`(\w+(?:=[^`]+)?)`")
_FILE_SUFFIX = ".toml"  #: Suffix of judge files.
#: Keys of a judge file with paths, which are relative to the file.
_PATH_KEYS = {"format", "prompt", "replay"}


class AnswerJudgeOptions(Options):
    """Options of a judge that decides the answers which the grader leaves undecided."""

    judge: Annotated[str | None, Option(panel="Judge", metavar="MODEL|FILE.toml")] = None
    """Model that decides the answers that the grader leaves undecided. It is a short name,
    `org/name[@revision]` on the Hub, or a directory. Verdicts of the grader stay. For a server, or
    another prompt, give a TOML file with the key ``model``, and with ``engine``, ``base_url``,
    ``api``, ``format``, ``prompt``, ``max_tokens`` and others (docs/howto/judge.md).
    """


class AnswerJudgeFile(Options):
    """The model of a judge with its format and its engine: the keys of a judge file."""

    model: str
    """Short name, `org/name[@revision]` on the Hub, a directory, or the name on the server."""
    format: str | None = None
    """Prompt of the judge, and the way its replies are read: the name of a format, or a TOML file.
    By default, the name of the model decides.
    """
    prompt: Path | None = None
    """Text file with the prompt of the authors, for formats without a prompt of their own."""
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    """Maximum number of tokens per reply. By default, the format decides."""
    engine: Annotated[SamplerOptions, Group(without=("actors", "batch_size"))] = SamplerOptions()
    """Engine that runs the judge."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        self.engine.check_model_options()


def read_judge(judge: str) -> AnswerJudgeFile:
    """Return the judge of the option ``judge``: a model, or the content of a TOML file.

    Raises:
        InputError: if the file cannot be read, or has an unknown key or an unusable value.
    """
    if not judge.endswith(_FILE_SUFFIX):
        return AnswerJudgeFile(model=judge)
    file = Path(judge).expanduser()
    keys = command_parameters(AnswerJudgeFile)
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
    with judge_errors(judge):
        return make_options(AnswerJudgeFile, table)


@contextlib.contextmanager
def judge_errors(judge: str) -> Iterator[None]:
    """Give errors about a judge the option ``judge``, or the file of the judge and its key."""
    try:
        yield
    except FsdpoError as error:
        key = error.field.rpartition(".")[2]
        if judge.endswith(_FILE_SUFFIX):
            location = f"{key} = {error.value!r}: " if key else ""
            # Backquotes mark options of the command. These are keys of the file.
            message = _QUOTED_FIELD.sub(r"\1", error.message)
            raise type(error)(f"{Path(judge).expanduser()}: {location}{message}") from None
        if key in ("model", "template"):
            raise error.for_field("judge") from None
        raise type(error)(f"the judge {judge}: {error.message}") from None


class AnswerJudgeSettings(ContinuationSettings):
    """Everything that decides the verdicts of a judge of undecided answers.

    Its replies are continuations of prompts.
    """

    format: str  #: Name of its prompt and of the way in which its replies are read.
    format_digest: str  #: Digest of the fields of the format that decide the verdicts.
    prompt_sha256: str  #: SHA-256 of the prompt, before values replace the names in braces.
    template: TemplateRef  #: The prompt template.
