"""``make lint`` refuses names and terms that only insiders understand."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_words import ROOT, Vocabulary, check_checkout

VOCABULARY = Vocabulary.read(ROOT / "tests" / "vocabulary.toml")


def findings(tmp_path: Path, source: str, name: str = "fsdpo_data/module.py") -> list[str]:
    """Return the refused names of a checkout with one file."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")
    return [finding.name for finding in check_checkout(tmp_path, VOCABULARY)]


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        ("told = 1\n", ["told"]),
        ("def read(found):\n    pass\n", ["found"]),
        ("for each in ():\n    pass\n", ["each"]),
        ("rows = [each for each in ()]\n", ["each"]),
        ("def f(self):\n    self.rest = 1\n", ["rest"]),
        ("try:\n    pass\nexcept ValueError as what:\n    pass\n", ["what"]),
        ("import os as one\n", ["one"]),
        ("if (made := 1):\n    pass\n", ["made"]),
        ("def encoded():\n    pass\n", ["encoded"]),
        ("def made_by():\n    pass\n", ["made_by"]),
        ("class Halves:\n    pass\n", ["Halves"]),
        ("def sample_owed():\n    pass\n", ["sample_owed"]),
        ('"""The readout of a step."""\n', ["readout"]),
        ("# computed anew\n", ["anew"]),
    ],
)
def test_a_bad_name_is_refused(tmp_path: Path, source: str, refused: list[str]) -> None:
    assert findings(tmp_path, source) == refused


@pytest.mark.parametrize(
    "source",
    [
        "for solution in ():\n    pass\n",
        "print(told)\n",
        "class C:\n    @property\n    def encoded(self):\n        pass\n",
        "def embed():\n    pass\n",
        "def need_rows():\n    pass\n",
        "def truncated_steps():\n    pass\n",
        '"""The score position of a step."""\n',
    ],
)
def test_a_good_name_passes(tmp_path: Path, source: str) -> None:
    assert findings(tmp_path, source) == []


def test_a_class_name_has_one_meaning_in_all_packages(tmp_path: Path) -> None:
    assert findings(tmp_path, "class Result:\n    pass\n") == []
    second_file = "benchmarks/fsdpo_bench/module.py"
    assert findings(tmp_path, "class _Result:\n    pass\n", second_file) == ["_Result"]


def test_a_page_uses_no_retired_term(tmp_path: Path) -> None:
    assert findings(tmp_path, "# Readouts\n", "docs/page.md") == ["Readouts"]


def test_kept_outputs_are_not_checked(tmp_path: Path) -> None:
    assert findings(tmp_path, "computed anew\n", "benchmarks/measured/old.md") == []


def test_every_exception_has_a_reason() -> None:
    assert all(reason.strip() for reason in VOCABULARY.exceptions.values())
