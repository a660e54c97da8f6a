"""Tests of the command lines that datasets store: they create equal datasets."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from random_model import save_random_prm

from fsdpo_data.core.identity import RELEASE
from fsdpo_data.models.resolve import CHECKPOINT

BUILD = ("build", "--limit", "3", "--samples", "3", "--max-tokens", "48")
ENGINE = ("--engine", "transformers", "--device", "cpu")


def manifest_of(dataset: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((dataset / "manifest.json").read_text())
    return manifest


def card_commands(dataset: Path) -> list[list[str]]:
    """Return the commands on the card, without the name of the program."""
    text = (dataset / "README.md").read_text().partition("To create the dataset again")[2]
    block = text.partition("```bash\n")[2].partition("```")[0].replace(" \\\n", " ")
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    return [words[1:] for words in lines if words]


def test_the_commands_of_a_card_create_an_equal_dataset(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prm = str(save_random_prm(tmp_path / "prm", CHECKPOINT))
    stages: list[tuple[str, ...]] = [
        (*BUILD, *ENGINE, "--temperature", "0.9", "--out", "built"),
        ("grade", "built", "--grade-thinking", "--out", "graded"),
        ("label", "graded", "--rollouts", "2", "--device", "cpu", "--out", "labelled"),
        ("score", "labelled", "--prm", prm, "--device", "cpu", "--out", "scored"),
    ]
    for stage in stages:
        code, out, err = run(capsys, *stage)
        assert code == 0, out + err
    manifest = manifest_of(Path("scored"))
    assert len(manifest["commands"]) == 4 and "built" not in str(manifest["commands"])
    assert str(tmp_path) not in str(manifest["commands"])
    for command in card_commands(Path("scored")):
        words = [prm if word == "prm" else word for word in command]
        code, out, err = run(capsys, *words, *(("--device", "cpu") if "--engine" in words else ()))
        assert code == 0, out + err
    again = manifest_of(Path("runs/score"))
    assert again["digest"] == manifest["digest"] and again["spec"] == manifest["spec"]
    assert again["commands"] == manifest["commands"]


def test_a_build_with_stages_stores_one_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prm = str(save_random_prm(tmp_path / "prm", CHECKPOINT))
    pairs = ("--prm", prm, "--top", "2", "--temperature", "1.2")
    code, out, err = run(capsys, *BUILD[:4], "6", *BUILD[5:], *ENGINE, *pairs, "--out", "pairs")
    assert code == 0, out + err
    [command] = manifest_of(Path("pairs"))["commands"]
    assert (
        command.endswith(f"--template problem@1 --segmenter auto@1  # {RELEASE}")
        and "--top 2" in command
    )
    assert " --prm prm " in command
    [inner_command] = manifest_of(Path("pairs/build"))["commands"]
    assert inner_command == command.replace(" --prm prm --top 2", "")


@pytest.mark.usefixtures("empty_plugins")
def test_plugins_are_recorded_and_may_not_change(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "my_plugin_of_commands.py"
    file.write_text("VERSION = 1\n")
    monkeypatch.setitem(sys.modules, file.stem, None)  # restores the state at the end
    del sys.modules[file.stem]
    line = (*BUILD, *ENGINE, "--plugin", str(file))
    code, out, err = run(capsys, *line, "--out", "a")
    assert code == 0, out + err
    manifest = manifest_of(Path("a"))
    [plugin] = manifest["plugins"]
    assert plugin["module"] == file.stem and len(plugin["sha256"]) == 64
    assert manifest["commands"][0].startswith(f"fsdpo-data build --plugin {file.name} ")
    [command] = card_commands(Path("a"))
    code, out, err = run(capsys, *command, "--device", "cpu")
    assert code == 0, out + err
    assert manifest_of(Path("runs/build"))["digest"] == manifest["digest"]
    code, _, err = run(capsys, *line, "--out", "a", "--resume")
    assert code == 0, err
    # Another version of the file is another run.
    file.write_text("VERSION = 2\n")
    del sys.modules[file.stem]
    code, _, err = run(capsys, *line, "--out", "a", "--resume")
    assert code == 1 and "plugins" in err


def test_a_missing_plugin_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, *BUILD, "--plugin", "nowhere.py")
    assert code == 1 and "nowhere.py" in err and "there is no such file" in err
