"""Rendering of templates: their filters, and the environments that keep compiled templates."""

from pathlib import Path

import pytest
from fsdpo_cards.render import render
from jinja2 import Environment, TemplateError


def shout(text: str) -> str:
    return f"{text.upper()}!"


def whisper(text: str) -> str:
    return f"{text.lower()}…"


def test_a_template_has_only_the_filters_of_its_own_call(tmp_path: Path) -> None:
    template = tmp_path / "greeting.md"
    template.write_text("{{ word | say }} {{ 1234 | count }}")
    assert render(template, {"say": shout}, word="Hi") == "HI! 1,234\n"
    assert render(template, {"say": whisper}, word="Hi") == "hi… 1,234\n"
    with pytest.raises(TemplateError, match="No filter named 'say'"):
        render(template, word="Hi")


def test_a_template_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template = tmp_path / "number.md"
    template.write_text("{{ number | count }}")
    compiled_names: list[str | None] = []
    compile_template = Environment.compile

    def count_call(self: Environment, source: str, name: str | None, filename: str) -> object:
        compiled_names.append(name)
        return compile_template(self, source, name, filename)

    monkeypatch.setattr(Environment, "compile", count_call)
    assert [render(template, number=number) for number in (1, 2000)] == ["1\n", "2,000\n"]
    assert compiled_names == ["number.md"]
