"""Thinking in a field of its own becomes the text that the model of a chat template writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_tokenizer import save_tokenizer

pytest.importorskip("transformers")
pytest.importorskip("trl")
import trl

from fsdpo_data.answers.thinking import find_thinking
from fsdpo_data.models.prompts import ChatFormat, load_tokenizer
from fsdpo_data.models.thinking_format import ThinkingFormat, find_thinking_format

#: Copies of the chat templates of public models.
TEMPLATES = Path(trl.__file__).parent / "chat_templates"
QUESTION = {"role": "user", "content": "1 + 2?"}


def chat_format(folder: Path, template: str) -> ChatFormat:
    return ChatFormat(load_tokenizer(save_tokenizer(folder, chat=template)))


@pytest.mark.parametrize("name", ["qwen3", "qwen3_5_think", "glm4moe", "gptoss", "nemotron_3_nano"])
def test_the_completion_is_that_of_the_chat_template(tmp_path: Path, name: str) -> None:
    chat = chat_format(tmp_path, (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"))
    thinking_format = find_thinking_format(chat)
    assert thinking_format is not None
    text = thinking_format.join("\nOne and two.\n", "\n\nIt is 3.")
    answer = {"role": "assistant", "content": "It is 3."}
    answer |= dict.fromkeys(["reasoning_content", "thinking"], "One and two.")
    prompt = chat.apply([QUESTION], add_generation_prompt=True)
    assert chat.apply([QUESTION, answer]).startswith(prompt + text)
    for known_prompt in (prompt, "1 + 2?"):  # rows of a chat server have the message alone
        thinking = find_thinking(known_prompt, text)
        assert (thinking.closed, text[thinking.end :]) == (True, "It is 3.")


@pytest.mark.parametrize(
    ("generation_prompt", "expected"),
    [
        ("<think>\n", ThinkingFormat("", "\n</think>\n\n")),  # DeepSeek-R1, QwQ
        ("<think>", ThinkingFormat("", "</think>")),  # DeepSeek-V3.1
        ("", ThinkingFormat("<think>\n", "\n</think>\n\n")),  # DeepSeek-R1 before February 2025
        ("<think>\n\n</think>\n\n", None),  # thinking is switched off
    ],
)
def test_a_template_that_removes_thinking_shows_its_tags(
    tmp_path: Path, generation_prompt: str, expected: ThinkingFormat | None
) -> None:
    chat = chat_format(
        tmp_path,
        "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>" + generation_prompt + "{% endif %}",
    )
    assert find_thinking_format(chat) == expected


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[-1].content }}",  # no tags
        "{{ messages[-1].reasoning_content }}<ANSWER>{{ messages[-1].content }}",  # unknown ones
        "{{ raise_exception('no answers') if messages | length > 1 }}</think>",
    ],
)
def test_a_template_without_known_tags_gives_none(tmp_path: Path, template: str) -> None:
    assert find_thinking_format(chat_format(tmp_path, template)) is None


def test_thinking_without_an_answer_never_ends() -> None:
    assert ThinkingFormat("<think>\n", "\n</think>\n\n").join("Hm, ", " ") == "<think>\nHm,"
