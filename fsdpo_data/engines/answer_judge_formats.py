"""Formats of answer judges: their prompts, and how their replies are read; the formats are data.

An answer judge is a language model that compares a final answer with the gold answer. Verifier
models such as xVerify and CompassVerifier have a prompt and replies of their own. General chat
models get the format ``chat``.

The response comes from a model and may be hostile. It may contain a verdict, the end of its own
section, or the control tokens of a chat format. Only the reply of the judge is read. Sections are
marked with a digest of their content, which the content cannot contain. Delimiters of a format and
control tokens are broken up in all values.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

from pydantic import Field

from fsdpo_data.answers.thinking import find_thinking
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import digest
from fsdpo_data.core.input_files import read_file
from fsdpo_data.core.placeholders import fill_text, names_in_braces
from fsdpo_data.engines.model_formats import FormatTable, ModelFormat

DEFAULT_FORMAT = "chat"  #: Format of models that no other format lists.
#: Maximum length of the end of a response, in bytes. A token has at least one byte, so this is also
#: the maximum number of tokens.
MAX_RESPONSE_BYTES = 8192
_MARK_CHARS = 12  #: Hexadecimal digits of the mark between sections.
#: Text before a response without its start.
_OMISSION = "[…] "
#: The values that a prompt can contain.
_VALUE_NAMES = ("question", "gold", "answer", "response", "mark")
#: Parts of the control tokens of usual chat formats. A server reads them in any message.
_CONTROL_TOKEN = re.compile(
    r"(?<=<)(?=[|｜])|(?<=[|｜])(?=>)|(?<=<)(?=/?(?:s|bos|eos|think|(?:start|end)_of_turn)>)"
    r"|(?<=\[)(?=/?INST\])"
)

#: The decision of a judge. ``undecided``: the judge read the answer, and did not decide.
JudgeDecision = Literal["correct", "incorrect", "undecided"]
_DECISIONS: tuple[JudgeDecision, ...] = get_args(JudgeDecision)


class JudgeQuestion(NamedTuple):
    """An undecided answer, with everything that a judge reads about it."""

    question: str  #: The problem, with the options of a multiple-choice problem.
    gold: str  #: The gold answer.
    answer: str  #: The final answer that the grader extracted; empty if it found none.
    response: str  #: The response without its thinking.


class AnswerJudgeFormat(ModelFormat):
    """The prompt of an answer judge, and how its reply is read."""

    prompt: str = ""
    """The prompt. A value replaces each name in braces. Empty if the user must give the prompt of
    the authors.
    """
    placeholders: Mapping[str, str] = Field(default_factory=dict)
    """The value of each name in braces: ``question``, ``gold``, ``answer``, ``response`` or
    ``mark``. Without an entry, the name is the value.
    """
    has_doubled_braces: bool = False
    """Whether ``{{`` and ``}}`` mean braces, as in a format string of Python."""
    prompt_sha256: str = ""
    """SHA-256 of the prompt of the authors. Another prompt is refused. Empty for any prompt."""
    prompt_source: str = ""
    """Where the authors publish the prompt."""
    prompt_commit: str = ""
    """Commit of this source."""
    prompt_licence: str = ""
    """Licence of this source."""
    template: str = "chat"
    """Name of the prompt template."""
    delimiters: Sequence[str] = ()
    """Strings that separate the values in the prompt. They are broken up inside values."""
    pattern: str
    """Regular expression of a complete reply, without its thinking. Its group is the verdict."""
    verdicts: Mapping[str, str]
    """The decision of each verdict, by the verdict in lower case: a :data:`JudgeDecision`."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """Sampling temperature; 0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Mass of nucleus sampling."""
    max_tokens: Annotated[int, Field(ge=1)] = 2048
    """Maximum number of tokens of a reply."""
    max_response_bytes: Annotated[int, Field(ge=1)] = MAX_RESPONSE_BYTES
    """Maximum length of the end of the response, in bytes; also a limit of its tokens."""

    fields_without_effect: ClassVar[Collection[str]] = (
        "name",
        "models",
        "prompt_source",
        "prompt_commit",
        "prompt_licence",
    )

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise ValueError(f"pattern: {error}") from None
        if groups != 1:
            raise ValueError(f"pattern: expected one group, the verdict, and found {groups}")
        if unknown_decisions := sorted({*self.verdicts.values()} - {*_DECISIONS}):
            raise ValueError(
                f"verdicts: expected {', '.join(_DECISIONS)}, not {unknown_decisions[0]!r}"
            )
        prompt_names = names_in_braces(self.prompt, has_doubled_braces=self.has_doubled_braces)
        names = {self.placeholders.get(name, name) for name in prompt_names}
        if self.prompt and not {"gold", "response"} <= names and not {"gold", "answer"} <= names:
            raise ValueError("prompt: expected {gold}, and {response} or {answer}")
        unknown_names = sorted({*self.placeholders.values()} - {*_VALUE_NAMES})
        if unknown_names:
            expected_names = ", ".join(_VALUE_NAMES)
            raise ValueError(f"placeholders: expected {expected_names}, not {unknown_names[0]!r}")

    @property
    def prompt_digest(self) -> str:
        """SHA-256 of the prompt, before values replace the names in braces."""
        return hashlib.sha256(self.prompt.encode()).hexdigest()

    def render(self, item: JudgeQuestion, special_tokens: Collection[str] = ()) -> str:
        """Return the prompt for an answer, without the chat format of the judge.

        Args:
            item: The answer.
            special_tokens: The special tokens of the judge's tokenizer.
        """
        response = cut_start(item.response.strip(), self.max_response_bytes)
        values: dict[str, str] = item._replace(response=response)._asdict()
        values = {
            name: self._break_up_tokens(value, special_tokens) for name, value in values.items()
        }
        values["mark"] = digest("answer-judge-mark", values)[:_MARK_CHARS]
        renamed_values = {
            name: values[value_name] for name, value_name in self.placeholders.items()
        }
        return fill_text(
            self.prompt, values | renamed_values, has_doubled_braces=self.has_doubled_braces
        )

    def _break_up_tokens(self, text: str, special_tokens: Collection[str]) -> str:
        """Return a value in which a space breaks up control tokens and delimiters."""
        text = _CONTROL_TOKEN.sub(" ", text)
        tokens = tuple(token for token in (*self.delimiters, *special_tokens) if len(token) > 1)
        return _token_start_pattern(tokens).sub(r"\g<0> ", text) if tokens else text

    def read_reply(self, prompt: str, reply: str, finish_reason: str) -> JudgeDecision | None:
        """Return the decision in a reply; None if the reply cannot be read.

        A truncated reply and a reply that ends in its thinking cannot be read.

        Args:
            prompt: The prompt that the judge received; it may open the thinking.
            reply: The text that the judge wrote.
            finish_reason: ``stop``, or ``length`` for a truncated reply.
        """
        thinking = find_thinking(prompt, reply)
        if finish_reason == "length" or thinking.closed is False:
            return None
        match = re.fullmatch(self.pattern, reply[thinking.end :].strip())
        verdict = match[1].lower() if match and match[1] else ""
        decision = self.verdicts.get(verdict)
        return next((name for name in _DECISIONS if name == decision), None)


@cache
def _token_start_pattern(tokens: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern of the first character of each token, also of tokens that overlap."""
    starts = [f"{re.escape(token[0])}(?={re.escape(token[1:])})" for token in tokens]
    return re.compile("|".join(starts))


def cut_start(text: str, max_bytes: int) -> str:
    """Return the end of a text, at most ``max_bytes`` long in UTF-8."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= max_bytes:
        return text
    return _OMISSION + encoded[-max_bytes:].decode(errors="ignore")


def add_answer_options(question: str, metadata: Mapping[str, Any]) -> str:
    """Return a question with the options of a multiple-choice problem, if the question lacks them.

    The metadata may have them as ``options`` or ``choices``. They are a list of texts, texts by
    letter, or lists of ``label`` and ``text``, as in datasets on the Hub.
    """
    options = metadata.get("options") or metadata.get("choices")
    if isinstance(options, dict) and isinstance(options.get("text"), list):
        texts = options["text"]
        labels = options.get("label")
        options = texts
        if isinstance(labels, list) and len(labels) == len(texts):
            options = dict(zip(labels, texts, strict=True))
    if isinstance(options, list):
        options = {chr(ord("A") + index): text for index, text in enumerate(options[:26])}
    if not isinstance(options, dict) or _contains_words(question, options.values()):
        return question
    lines = [f"{label}. {text}" for label, text in options.items()]
    return "\n".join([question, *lines])


def _contains_words(text: str, words: Iterable[Any]) -> bool:
    """Return whether a text contains all words, none of them as a part of a longer word."""
    return all(re.search(rf"(?<!\w){re.escape(str(word))}(?!\w)", text) for word in words)


#: All formats by name.
ANSWER_JUDGE_FORMATS = FormatTable(
    __file__,
    AnswerJudgeFormat,
    title="judge format",
    field="format",
    not_inherited=("models",),
)


def add_prompt(judge_format: AnswerJudgeFormat, file: Path | None) -> AnswerJudgeFormat:
    """Return a format with the prompt in a file, and check the prompt.

    Args:
        judge_format: The format.
        file: The file; None to use the prompt of the format.

    Raises:
        InputError: if the format has no prompt, or the prompt differs from the authors' prompt.
    """
    if file is not None:
        try:
            prompt = read_file(file).decode()
            judge_format = judge_format.replace(prompt=prompt)
        except (OSError, ValueError) as error:
            raise InputError(
                f"the file cannot be used: {error}. Give a UTF-8 text file with the prompt.",
                field="prompt",
                value=str(file),
            ) from None
    source = f"the text of {judge_format.prompt_source} at commit {judge_format.prompt_commit}"
    if not judge_format.prompt:
        raise InputError(
            f"the format {judge_format.name} needs the prompt of its authors "
            f"({judge_format.prompt_licence}), which is not a part of fsdpo. Save {source} in a "
            "file. Name this file with the key prompt in the TOML file of the judge. Or use the "
            "format chat."
        )
    if judge_format.prompt_sha256 not in ("", judge_format.prompt_digest):
        raise InputError(
            f"the prompt has the SHA-256 {judge_format.prompt_digest}, and the format "
            f"{judge_format.name} expects {judge_format.prompt_sha256}, {source}. Save exactly "
            "this text, or define a format of your own in a TOML file.",
            field="prompt",
            value=None if file is None else str(file),
        )
    return judge_format
