"""The text around thinking, for thinking that a server returned in a field of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsdpo_data.answers.thinking import THINKING_MARKERS, find_thinking
from fsdpo_data.models.prompts import ChatFormat

# A conversation whose texts show what a chat template writes around them.
_QUESTION = {"role": "user", "content": "What is 2 + 2?"}
_THINKING = "Two and two, so four."
_ANSWER = "The sum is 4."
#: Fields of a message from which chat templates read the thinking.
_THINKING_FIELDS = ("reasoning_content", "reasoning", "thinking")


@dataclass(frozen=True, slots=True)
class ThinkingFormat:
    """The text that a model writes around its thinking."""

    start: str  #: Text between the prompt and the thinking; empty if the prompt opens it.
    end: str  #: Text between the thinking and the answer.

    def join(self, thinking: str, answer: str) -> str:
        """Return the completion with its thinking. Without an answer, the thinking never ends."""
        text = self.start + thinking.strip()
        return text + self.end + answer.lstrip() if answer.strip() else text


def find_thinking_format(
    chat: ChatFormat,
    arguments: Mapping[str, Any] | None = None,
    first_messages: Sequence[Mapping[str, Any]] = (),
) -> ThinkingFormat | None:
    """Return the text that the model of a chat template writes around its thinking.

    Args:
        chat: The chat template.
        arguments: Its keyword arguments, such as ``enable_thinking``.
        first_messages: Messages before the question.

    Returns:
        The text that the template writes. Templates that remove the thinking of finished answers
        give the tags that they look for. None if the template shows no known tags.
    """
    conversation = [*first_messages, _QUESTION]
    answer = {"role": "assistant", "content": _ANSWER, **dict.fromkeys(_THINKING_FIELDS, _THINKING)}
    try:
        prompt = chat.apply(conversation, arguments, add_generation_prompt=True)
        rendered = chat.apply([*conversation, answer], arguments)
    except Exception:  # Jinja and chat templates may raise any exception
        return None
    candidates = [_rendered_format(prompt, rendered), *_tag_formats(prompt, chat.source[0])]
    for candidate in filter(None, candidates):
        text = candidate.join(_THINKING, _ANSWER)
        # The grader and the segmenters find thinking by known markers.
        thinking = find_thinking(prompt, text)
        if thinking.closed and text[thinking.end :] == _ANSWER:
            return candidate
    return None


def _rendered_format(prompt: str, rendered: str) -> ThinkingFormat | None:
    """Return the text around the thinking of a rendered answer; None if it has no thinking."""
    completion = rendered.removeprefix(prompt)
    start, thinking, text_after = completion.partition(_THINKING)
    end, answer, _ = text_after.partition(_ANSWER)
    is_complete = rendered.startswith(prompt) and thinking and answer
    return ThinkingFormat(start, end) if is_complete else None


def _tag_formats(prompt: str, template: str) -> list[ThinkingFormat]:
    """Return formats with the tags in the source of a chat template.

    The white space is that of DeepSeek-R1 and QwQ, or none if the prompt has none after the tag.
    """
    opened = prompt.rstrip()
    space_after_tag = prompt[len(opened) :]
    formats = []
    for markers in THINKING_MARKERS.values():
        if markers.end not in template or opened.endswith(markers.end):
            continue  # the template has no such tags, or a prompt without thinking closed them
        if opened.endswith(markers.start):
            end = f"{space_after_tag}{markers.end}{space_after_tag * 2}"
            formats.append(ThinkingFormat("", end))
        else:
            formats.append(ThinkingFormat(f"{markers.start}\n", f"\n{markers.end}\n\n"))
    return formats
