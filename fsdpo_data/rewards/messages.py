"""Texts of prompts and completions, which are plain text or the messages of a chat."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fsdpo_data.core.errors import InputError

#: A message of a chat, with ``role`` and ``content``.
Message = Mapping[str, Any]
#: A plain text, or the messages of a chat.
Conversation = str | Sequence[Message]


def completion_text(completion: Conversation) -> str:
    """Return a plain completion, or the last text of the assistant in a chat.

    A completion with tool calls has several messages. Only the last text of the assistant can hold
    the answer. Text in ``reasoning_content`` is not part of it.

    Raises:
        InputError: if the completion is neither a text nor a list of messages, or if none of its
            messages is from the assistant.
    """
    if isinstance(completion, str):
        return completion
    text = _last_text(completion, "assistant", field="completions")
    if completion and all(message.get("role") != "assistant" for message in completion):
        raise InputError(
            "expected a message with the role `assistant`.", field="completions", value=completion
        )
    return text or ""


def has_separate_reasoning(completion: Conversation) -> bool:
    """Return whether a message has its thinking in ``reasoning_content``, outside its text."""
    if isinstance(completion, str):
        return False
    return any(message.get("reasoning_content") for message in completion)


def user_text(prompt: Conversation) -> str | None:
    """Return the last text of the user in a chat; None for a plain text, or without a user.

    Raises:
        InputError: if the prompt is neither a text nor a list of messages.
    """
    return None if isinstance(prompt, str) else _last_text(prompt, "user", field="prompts")


def _last_text(messages: Sequence[Message], role: str, *, field: str) -> str | None:
    """Return the text of the last message of a role that has any text; None without one."""
    if not isinstance(messages, Sequence) or not all(
        isinstance(message, Mapping) for message in messages
    ):
        raise InputError(
            "expected texts, or lists of messages with `role` and `content`.",
            field=field,
            value=messages,
        )
    for message in reversed(messages):
        if message.get("role") == role and (text := _content_text(message.get("content"))):
            return text
    return None


def _content_text(content: Any) -> str:
    """Return the text of a message: a text, or the joined text blocks of a list."""
    if isinstance(content, str):
        return content
    blocks: Iterable[Any] = content if isinstance(content, Sequence) else ()
    return "".join(
        block["text"]
        for block in blocks
        if isinstance(block, Mapping) and isinstance(block.get("text"), str)
    )
