"""Texts on the terminal are printed as they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers import seal_json, statistics_of
from hypothesis import example, given
from hypothesis import strategies as st
from reader_inputs import FROZEN
from rich.text import Text

from fsdpo_data.cli.printing import escape_for_terminal, print_summary


@given(st.text(alphabet="\\\\[]a/#@= \n", max_size=12))
@example(r"so \[ x = 5 \] and [b]bold[/b]")
def test_texts_contain_no_markup(text: str) -> None:
    markup = f"[bold]7[/] {escape_for_terminal(text)} [dim]x[/]"
    assert Text.from_markup(markup, emoji=False).plain == f"7 {text} x"


def test_a_summary_prints_names_of_foreign_stages_and_folders_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "[bold]runs"
    shutil.copytree(FROZEN, folder)
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    name = "\x1b[2Jclear [b]x[/b]"
    manifest["stages"].append({"name": name, "options": {}, "writes": [], "counts": {}})
    file.write_text(seal_json(manifest))
    print_summary(statistics_of(folder), "[bold]runs")
    output = capsys.readouterr().out
    assert "\x1b" not in output
    assert output.startswith("[bold]runs") and "clear [b]x[/b]" in output
