"""Tests of installation hints: they name a command that works for the user."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fsdpo_data.core import errors


def test_a_checkout_and_a_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    assert errors.install_command("train") == f"pip install -e '{root}[train]'"
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "fsdpo_data/core/errors.py"))
    assert errors.install_command("train") == "pip install 'fsdpo[train]'"


def test_no_other_file_says_what_to_install() -> None:
    root = Path(__file__).parents[3]
    folders = ("fsdpo_data", "fsdpo_train", "benchmarks/fsdpo_bench", "cards/fsdpo_cards")
    files = [file for folder in folders for file in (root / folder).rglob("*.*")]
    files = [file for file in files if file.suffix != ".pyc"]
    matching_files = [
        file.name for file in files if re.search(rb"fsdpo\[|pip install", file.read_bytes())
    ]
    assert matching_files == ["errors.py"]
