"""Prompt templates: named, numbered, and exact to the character.

A model answers best to the prompt it was tuned on, and published numbers are tied to one. Each
template here repeats what a public trainer or evaluation script sends, so a template is never
edited: a change is a new number, and a bare name means the latest one.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fsdpo_data.core.errors import InputError, UnavailableError, install_command, unknown_name_error
from fsdpo_data.core.identity import digest
from fsdpo_data.core.toml_tables import TomlTable
from fsdpo_data.hub.client import HubRepo, to_fsdpo_error
from fsdpo_data.models.untrusted import describe_load_error, limit_execution, read_tokenizer

_MARK = re.compile(r"\{(question|first_line|rest)\}")


@dataclass(frozen=True, slots=True)
class Template:
    r"""A question goes in, the string the model continues comes out."""

    name: str  #: Name and number, e.g. ``alpaca@1``.
    text: str  #: What is rendered, with ``{question}`` where the question goes.
    #: Rendered in place of ``text`` when the question has more than one line, with ``{first_line}``
    #: and ``{rest}``; empty for templates that make no difference.
    multiline: str = ""
    stop: tuple[str, ...] = ()  #: Strings that end an answer, for samplers that need to be told.
    #: The tokenizer's own chat format, put around the text; None for plain text.
    chat: ChatFormat | None = None

    @property
    def digest(self) -> str:
        """Digest of what is rendered: equal texts are equal prompts, whatever their name."""
        frame = self.chat.source if self.chat else None
        return digest("template", self.text, self.multiline, frame)

    def render(self, question: str) -> str:
        """Return the prompt for ``question``, which may hold braces or anything else."""
        first_line, _, rest = question.partition("\n")
        parts = {"question": question, "first_line": first_line, "rest": rest}
        text = self.multiline if self.multiline and rest else self.text
        # One pass over the template and none over the question: whatever looks like a mark
        # inside the question stays as it is.
        filled = _MARK.sub(lambda mark: parts[mark[1]], text)
        return self.chat.render(filled) if self.chat else filled


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """A tokenizer's own chat template, with the system message that it brings, if any."""

    tokenizer: Any  #: The loaded tokenizer.

    @property
    def source(self) -> tuple[str, dict[str, str]]:
        """Return everything a rendering depends on: template and special tokens."""
        special = {name: str(token) for name, token in self.tokenizer.special_tokens_map.items()}
        return str(self.tokenizer.get_chat_template()), special

    def render(self, user: str) -> str:
        """Return the conversation up to the point where the assistant starts to write."""
        with limit_execution("the chat template"):
            text: str = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": user}],
                tokenize=False,
                add_generation_prompt=True,
                # Llama 3.1 and later print today's date unless given one, others always; a prompt
                # must be the same tomorrow, so it gets the date that Llama's fall back to.
                date_string="26 Jul 2024",
                strftime_now=datetime(2024, 7, 26).strftime,
            )
        # Samplers tokenise prompts with special tokens on. Where that adds a
        # beginning-of-sequence token, the one the chat template wrote would be a second.
        bos = self.tokenizer.bos_token
        if bos and text.startswith(bos):
            ids = self.tokenizer(text)["input_ids"]
            if ids[:2] == [self.tokenizer.bos_token_id] * 2:
                return text.removeprefix(bos)
        return text


#: By name and number.
TEMPLATES = TomlTable(
    __file__, lambda name, stop=(), **told: Template(name, stop=tuple(stop), **told)
)
#: How recorded responses are "asked" where their files do not say it.
RECORDED_TEMPLATE = Template("recorded@1", "{question}")
CHAT_TEMPLATES = ("chat@1", "chat-boxed@1")  #: Rendered through the tokenizer's own chat template.


def get_template(
    name: str, tokenizer_path: str | None = None, *, revision: str | None = None
) -> Template:
    """Return the template called ``name``.

    ``alpaca`` is the latest of ``alpaca@1`` and its like. The chat templates, and they alone, need
    the directory or Hub repository of a tokenizer.

    Raises:
        InputError: if there is no such template, or the chat templates lack a tokenizer that has
            a chat template.
    """
    template = TEMPLATES[versioned_name(name)]
    if template.name not in CHAT_TEMPLATES:
        return template
    if tokenizer_path is None:
        raise InputError(
            f"template {template.name} is the model's own chat template, so it needs a model: "
            "name one whose tokenizer has a chat template, or choose another template."
        )
    chat = ChatFormat(load_tokenizer(tokenizer_path, revision))
    try:
        if "2+2?" not in chat.render("2+2?"):  # as those of models that want parts, not texts
            raise ValueError("it leaves the question out")
    except Exception as error:  # Jinja and its templates raise whatever they like
        raise InputError(
            f"the chat template of {tokenizer_path} cannot be used: {error}. Say by `template` "
            "what it is asked; `fsdpo-data templates` lists them."
        ) from None
    return dataclasses.replace(template, chat=chat)


def versioned_name(name: str) -> str:
    """Return a template's name with its version, by default the latest; InputError if none."""
    if name in TEMPLATES:
        return name
    versions = [known for known in TEMPLATES if known.partition("@")[0] == name]
    if versions:
        return max(versions, key=lambda known: int(known.partition("@")[2]))
    raise unknown_name_error("template", name, TEMPLATES)


def load_tokenizer(path: str, revision: str | None = None) -> Any:
    """Load the tokenizer of a model directory or Hub repository.

    Raises:
        Unavailable: if transformers is not installed, or the Hub refuses.
        InputError: if there is no usable tokenizer at ``path``.
    """
    try:
        return read_tokenizer(path, revision)
    except ImportError:
        raise UnavailableError(
            "chat templates need the transformers package. Install it with "
            f"{install_command('train')}, or choose a template other than chat."
        ) from None
    except Exception as error:  # a damaged file: tokenizers raises no narrower class
        if revision and (explained := to_fsdpo_error(error, HubRepo(path, "model", revision))):
            raise explained from None
        raise InputError(
            f"{path} has no tokenizer that can be loaded ({describe_load_error(error)}). Put its tokenizer "
            "files beside the weights, or choose a template other than chat."
        ) from None
