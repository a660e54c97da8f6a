"""The README shows the tree and the commands as they are."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


PACKAGES = ("fsdpo_data", "fsdpo_train", "benchmarks/fsdpo_bench")
TREE = next(block for block in README.split("```") if block.startswith("\nfsdpo_data/"))


def test_every_folder_in_the_tree_exists() -> None:
    seen, top = 0, ""
    for line in filter(None, TREE.splitlines()):
        if not line.startswith(" "):
            top = line.split()[0]
        for name in re.findall(r"(?<= )[a-z_]+/", f" {line}" if not line.startswith(" ") else line):
            places = [
                name,
                top + name,
                *(f"{top}{room.name}/{name}" for room in (ROOT / top).iterdir()),
            ]
            assert any((ROOT / place).is_dir() for place in places), f"README's tree shows {name}"
            seen += 1
    assert seen > 30


def test_every_room_is_in_the_tree() -> None:
    for package in PACKAGES:
        for room in sorted((ROOT / package).iterdir()):
            if (room / "__init__.py").exists():
                assert f"{room.name}/" in TREE, f"{room}: name it in README's tree"


def test_the_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    named = set(re.findall(r"(?:`|^)make ([a-z]+)", README, flags=re.M))
    assert {"demo", "test"} <= named <= targets


#: Whether it is run, language, content.
BLOCKS = [
    (not skipped, language, body)
    for skipped, language, body in re.findall(
        r"(<!-- not run[^>]*-->\n)?```(bash|python)\n(.*?)```", README, flags=re.S
    )
]


def test_every_line_is_a_command_that_exists() -> None:
    """Those that are not run here, too: command, flags and nothing else."""
    seen = 0
    for _, language, body in BLOCKS:
        for line in body.replace("\\\n", " ").splitlines() if language == "bash" else ():
            words = shlex.split(line, comments=True)
            if not words or not re.fullmatch(r"fsdpo-(data|train|bench)", words[0]):
                continue
            package = words[0].replace("-", "_")
            group = typer.main.get_command(import_module(f"{package}.cli.app").app)
            flags = {
                flag
                for each in group.commands[words[1]].params  # type: ignore[attr-defined]
                for flag in (*each.opts, *each.secondary_opts)
            }
            assert {word for word in words if word.startswith("--")} <= flags, line
            seen += 1
    assert seen > 30


@pytest.mark.proof
def test_every_block_runs_in_order(tmp_path: Path) -> None:
    """As printed, in a fresh directory, without the Hub."""
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    environment["PATH"] = f"{scripts}{os.pathsep}{environment['PATH']}"
    ran = [(language, body) for run, language, body in BLOCKS if run]
    assert len(ran) > 8
    for language, body in ran:
        line = (
            [sys.executable, "-c"] if language == "python" else ["bash", "-euo", "pipefail", "-c"]
        )
        done = subprocess.run(
            [*line, body], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{body}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
