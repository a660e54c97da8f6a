"""Prompt templates with names and version numbers, exact to the character.

A model works best with the prompt from its training, and published results depend on the prompt.
Each template copies the prompt of a public training or evaluation script. Templates therefore never
change: a change gets a new number, and a name without a number means the latest one. A user's own
template is a text file; manifests contain its text and digest.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fsdpo_data.core.errors import InputError, UnavailableError, install_command
from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.identity import digest
from fsdpo_data.core.input_files import read_file, read_json
from fsdpo_data.core.placeholders import fill_text, match_text
from fsdpo_data.core.registry import Registry
from fsdpo_data.core.toml_tables import read_module_table
from fsdpo_data.hub.client import HubRepo, to_fsdpo_error
from fsdpo_data.models.untrusted import describe_load_error, limit_execution, read_tokenizer

#: Suffix of a file with a prompt template.
TEMPLATE_SUFFIX = ".txt"
_MANIFEST_FILE = "manifest.json"
#: Names in braces that a template replaces. Others stay, such as ``\boxed{2}`` in an example.
_PLACEHOLDERS = ("question", "first_line", "rest")
_MARKED_QUESTION = "What is 20 + 22, the marked question?"  #: A question that no prompt contains.


class TemplateRef(FileModel):
    """A reference to a :class:`Template`, as files name it."""

    name: str  #: Name with version, such as ``alpaca@1``; the stem of a template file.
    digest: str  #: Digest of the template's text.
    text: str | None = None  #: Text of a template file; None for templates with a version.
    chat_arguments: dict[str, Any] | None = None  #: Keyword arguments of the chat template.


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt template, which turns a question into the text that the model continues."""

    name: str  #: Name and number, e.g. ``alpaca@1``.
    text: str  #: Text of the prompt, with the placeholder ``{question}``.
    #: Text for questions of several lines, with ``{first_line}`` and ``{rest}``; empty for
    #: templates that use ``text`` for all questions.
    multiline: str = ""
    stop: tuple[str, ...] = ()  #: Strings that end an answer, if the model may not stop.
    needs_chat: bool = False  #: Whether the chat template of the tokenizer must wrap the text.
    #: Chat format of the tokenizer, which wraps the text; None for plain text.
    chat: ChatFormat | None = None
    is_file: bool = False  #: Whether the template is a text file; the name is then the file stem.
    chat_arguments: str = ""  #: Keyword arguments of the chat template as JSON; empty for none.

    @property
    def digest(self) -> str:
        """Digest of the texts, the chat format and its arguments, without the name."""
        chat_source = self.chat.source if self.chat else None
        arguments = [self.chat_arguments] if self.chat_arguments else []
        return digest("template", self.text, self.multiline, chat_source, *arguments)

    @property
    def ref(self) -> TemplateRef:
        """The reference to the template, with the text of a file."""
        text = self.text if self.is_file else None
        arguments = json.loads(self.chat_arguments) if self.chat_arguments else None
        return TemplateRef(name=self.name, digest=self.digest, text=text, chat_arguments=arguments)

    def with_chat_arguments(self, arguments: Mapping[str, Any] | None) -> Template:
        """Return the template with keyword arguments of its chat template.

        Raises:
            InputError: if the template is not a chat template, or does not read an argument.
        """
        if not arguments:
            return self
        if not self.needs_chat:
            raise InputError(
                f"{self.name} is not a chat template, so it has no keyword arguments. Remove "
                "`template_arg`, or use `template=chat`.",
                field="template",
                value=self.name,
            )
        for name in arguments:
            # A chat template ignores names that it does not know.
            if self.chat is not None and not self.chat.mentions(name):
                raise InputError(
                    "the chat template of the tokenizer does not read this argument, which would "
                    "have no effect. Remove it, or correct its name.",
                    field="template_arg",
                    value=name,
                )
        text = json.dumps(arguments, sort_keys=True)
        return dataclasses.replace(self, chat_arguments=text)

    def render(self, question: str) -> str:
        """Return the prompt for ``question``, which may contain braces."""
        first_line, _, other_lines = question.partition("\n")
        values = dict(zip(_PLACEHOLDERS, (question, first_line, other_lines), strict=True))
        template_text = self.multiline if self.multiline and other_lines else self.text
        text = fill_text(template_text, values)
        if not self.chat:
            return text
        arguments = json.loads(self.chat_arguments) if self.chat_arguments else {}
        return self.chat.render(text, arguments)

    def find_question(self, prompt: str) -> str | None:
        """Return the question of a prompt that the template rendered; None for other prompts.

        Chat templates without the format of a tokenizer give None. So do prompts with examples,
        which repeat the text before the question.
        """
        if self.needs_chat:
            return self._find_chat_question(prompt) if self.chat else None
        for text in filter(None, (self.text, self.multiline)):
            values = match_text(text, prompt, _PLACEHOLDERS)
            if values is None:
                continue
            question = values.get("question") or "\n".join(values.values())
            introduction = text.partition("{")[0].strip()
            is_example = bool(introduction) and introduction in question
            if question.strip() and not is_example and self.render(question) == prompt:
                return question
        return None

    def _find_chat_question(self, prompt: str) -> str | None:
        """Return the text between the text that a chat template puts around each question."""
        prefix, suffix = self.text_around_question()
        if not prefix or not prompt.startswith(prefix) or not prompt.endswith(suffix):
            return None
        question = prompt.removeprefix(prefix)[: len(prompt) - len(prefix) - len(suffix)]
        return question if question.strip() else None

    def text_around_question(self) -> tuple[str, str]:
        """Return the text before and after a question of one line."""
        prefix, _, suffix = self.render(_MARKED_QUESTION).partition(_MARKED_QUESTION)
        return prefix, suffix


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """The chat template of a tokenizer, including its default system message."""

    tokenizer: Any  #: The loaded tokenizer.

    @property
    def source(self) -> tuple[str, dict[str, str]]:
        """The chat template and the special tokens, which determine the rendered text."""
        special_tokens = {
            name: str(token) for name, token in self.tokenizer.special_tokens_map.items()
        }
        return str(self.tokenizer.get_chat_template()), special_tokens

    def mentions(self, name: str) -> bool:
        """Return whether the chat template contains a word, such as the name of an argument."""
        return re.search(rf"\b{re.escape(name)}\b", self.source[0]) is not None

    def render(
        self,
        user: str,
        arguments: Mapping[str, Any] | None = None,
        first_messages: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """Return the conversation with one user message, up to the start of the answer.

        Args:
            user: The message.
            arguments: Keyword arguments of the chat template, such as ``enable_thinking``.
            first_messages: Messages before it, such as a system message.
        """
        messages = [*first_messages, {"role": "user", "content": user}]
        text = self.apply(messages, arguments, add_generation_prompt=True)
        # Samplers tokenize prompts with special tokens. If this adds a beginning-of-sequence token,
        # the token from the chat template would be a second one.
        bos = self.tokenizer.bos_token
        if bos and text.startswith(bos):
            ids = self.tokenizer(text)["input_ids"]
            if ids[:2] == [self.tokenizer.bos_token_id] * 2:
                return text.removeprefix(bos)
        return text

    def apply(
        self,
        messages: Sequence[Mapping[str, Any]],
        arguments: Mapping[str, Any] | None = None,
        *,
        add_generation_prompt: bool = False,
    ) -> str:
        """Return a conversation as the chat template writes it.

        Args:
            messages: The messages.
            arguments: Keyword arguments of the chat template, such as ``enable_thinking``.
            add_generation_prompt: Whether the start of an answer follows.
        """
        with limit_execution("the chat template"):
            text: str = self.tokenizer.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                # Some chat templates print today's date, but prompts must not change over time.
                # Use the date that the templates of Llama 3.1 and later fall back to.
                date_string="26 Jul 2024",
                strftime_now=datetime(2024, 7, 26).strftime,
                **(arguments or {}),
            )
        return text


#: Prompt templates by name and number: the rows of ``prompts.toml``, then plug-ins.
TEMPLATES = Registry("template", Template, group="fsdpo.templates")
for _name, _fields in read_module_table(__file__).items():
    TEMPLATES.register(Template(_name, **{**_fields, "stop": tuple(_fields.get("stop", ()))}))
#: Template of recorded responses whose files do not state their prompt.
RECORDED_TEMPLATE = Template("recorded@1", "{question}")


def get_template(
    name: str, tokenizer_path: str | None = None, *, revision: str | None = None
) -> Template:
    """Return a prompt template by name.

    Args:
        name: Name with a number, e.g. ``alpaca@1``, or without one for the latest number; or a
            place of :func:`find_template`.
        tokenizer_path: Directory or Hub repository of a tokenizer; only chat templates need it.
        revision: Revision of the Hub repository.

    Raises:
        InputError: if there is no such template, or a chat template has no usable tokenizer.
        UnavailableError: if the tokenizer cannot be loaded.
    """
    return add_chat_format(find_template(name), tokenizer_path, revision=revision)


def add_chat_format(
    template: Template, tokenizer_path: str | None, *, revision: str | None = None
) -> Template:
    """Return a template with the chat format of a tokenizer, if the template needs one.

    Args:
        template: The template.
        tokenizer_path: Directory or Hub repository of the tokenizer.
        revision: Revision of the Hub repository.

    Raises:
        InputError: if a chat template has no usable tokenizer.
        UnavailableError: if the tokenizer cannot be loaded.
    """
    if not template.needs_chat:
        return template
    if tokenizer_path is None:
        raise InputError(
            f"template {template.name} is the model's own chat template, so a model is required. "
            "Name a model whose tokenizer has a chat template, or choose another template."
        )
    tokenizer = load_tokenizer(tokenizer_path, revision)
    return with_chat_format(template, tokenizer, tokenizer_path)


def with_chat_format(template: Template, tokenizer: Any, owner: str) -> Template:
    """Return a template with the chat format of a loaded tokenizer, if the template needs one.

    Args:
        template: The template.
        tokenizer: The tokenizer.
        owner: The model of the tokenizer, for messages.

    Raises:
        InputError: if a chat template has no usable tokenizer.
    """
    if not template.needs_chat:
        return template
    try:
        return dataclasses.replace(template, chat=require_chat_format(tokenizer, owner))
    except InputError as error:
        raise InputError(
            f"{error.message} Choose another `template`; `fsdpo-data list templates` lists them."
        ) from None


def require_chat_format(tokenizer: Any, owner: str) -> ChatFormat:
    """Return the chat format of a tokenizer.

    Args:
        tokenizer: The tokenizer.
        owner: The model of the tokenizer, for messages.

    Raises:
        InputError: if the tokenizer has no chat template, or one that cannot be used.
    """
    chat = ChatFormat(tokenizer)
    try:
        if not tokenizer.chat_template:
            raise ValueError("its tokenizer has none")
        # Chat templates for multimodal messages ignore content that is plain text.
        if "2+2?" not in chat.render("2+2?"):
            raise ValueError("the rendered prompt lacks the question")
    except Exception as error:  # Jinja and chat templates may raise any exception
        raise InputError(
            f"the chat template of {owner} cannot be used: {describe_load_error(error)}."
        ) from None
    return chat


def is_same_template(first: TemplateRef, second: TemplateRef) -> bool:
    """Return whether two references are to one template.

    The digest of a chat template may lack the chat format of a tokenizer, where a server applied
    it. The name and the arguments then decide.
    """
    if first.digest == second.digest:
        return True
    arguments = first.chat_arguments
    if first.name != second.name or arguments != second.chat_arguments:
        return False
    if first.name not in TEMPLATES or not TEMPLATES[first.name].needs_chat:
        return False
    server_template = TEMPLATES[first.name].with_chat_arguments(arguments)
    return server_template.digest in (first.digest, second.digest)


def find_template(name: str) -> Template:
    """Return the template of a name, a text file, or the directory of a dataset that used one.

    The chat format of a tokenizer is not added; see :func:`get_template`.

    Raises:
        InputError: if there is no such template, or a file is not a template.
    """
    path = Path(os.path.expanduser(name))
    if path.suffix.lower() == TEMPLATE_SUFFIX:
        return _read_template(path)
    if (path / _MANIFEST_FILE).is_file():
        return _template_of_dataset(path)
    return TEMPLATES.find(name)


def _read_template(path: Path) -> Template:
    """Return the template in a text file, exact to the character."""
    try:
        text = read_file(path).decode()
    except UnicodeDecodeError as error:
        message = f"the file is not UTF-8 text ({error.reason}). Save it as UTF-8."
        raise InputError(message, field="template", value=str(path)) from None
    except OSError as error:
        raise InputError(
            f"the file cannot be read ({error.strerror}). Give a text file with the prompt, in "
            "which {question} stands for the question.",
            field="template",
            value=str(path),
        ) from None
    if "{question}" not in text:
        raise InputError(
            "the file has no {question}. Write {question} where the question belongs.",
            field="template",
            value=str(path),
        )
    return Template(path.stem, text, is_file=True)


def _template_of_dataset(path: Path) -> Template:
    """Return the template that the manifest of a dataset names or contains."""
    manifest = read_json(path / _MANIFEST_FILE)
    try:
        options = {record["name"]: record["options"] for record in manifest["stages"]}
        ref = TemplateRef.model_validate(options["sample"]["template"])
    except (KeyError, TypeError, ValidationError):
        raise InputError(
            f"the {_MANIFEST_FILE} in this directory does not name a template. Give a name or a "
            f"{TEMPLATE_SUFFIX} file.",
            field="template",
            value=str(path),
        ) from None
    return template_of_ref(ref)


def template_of_ref(ref: TemplateRef) -> Template:
    """Return the template that a file names; the chat format of a tokenizer is not added.

    Raises:
        InputError: if there is no such template, or if the one of this name has another text.
    """
    if ref.text is not None:
        template = Template(ref.name, ref.text, is_file=True)
    elif ref.name == RECORDED_TEMPLATE.name:
        template = RECORDED_TEMPLATE
    else:
        template = TEMPLATES.find(ref.name).with_chat_arguments(ref.chat_arguments)
    # The digest of a chat template contains the format of a tokenizer, which is not loaded here.
    if not template.needs_chat and template.digest != ref.digest:
        raise InputError(
            "the template of this name has another text here. Load the plug-in that it came from, "
            f"or give its text as a {TEMPLATE_SUFFIX} file.",
            field="template",
            value=ref.name,
        )
    return template


def load_tokenizer(path: str, revision: str | None = None) -> Any:
    """Load the tokenizer of a model directory or Hub repository.

    Raises:
        UnavailableError: if transformers is not installed, or the Hub refuses access.
        InputError: if ``path`` has no usable tokenizer.
    """
    try:
        return read_tokenizer(path, revision)
    except UnavailableError:
        raise
    except ImportError:
        raise UnavailableError(
            "chat templates need the transformers package. Install it with "
            f"{install_command('train')}, or choose a template other than chat."
        ) from None
    except Exception as error:  # a damaged file: tokenizers raises no narrower class
        if revision and (hub_error := to_fsdpo_error(error, HubRepo(path, "model", revision))):
            raise hub_error from None
        raise InputError(
            f"{path} has no tokenizer that can be loaded ({describe_load_error(error)}). Put the "
            "tokenizer files next to the weights, or choose a template other than chat."
        ) from None
