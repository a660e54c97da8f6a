"""CONTRIBUTING shows the tree as it is, and the README shows the commands as they are."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
import typer
from pages import blocks, run_blocks

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


PACKAGES = ("fsdpo_data", "fsdpo_train", "benchmarks/fsdpo_bench")
TREE = next(block for block in CONTRIBUTING.split("```") if block.startswith("\nfsdpo_data/"))


def test_every_folder_in_the_tree_exists() -> None:
    seen, top = 0, ""
    for line in filter(None, TREE.splitlines()):
        if not line.startswith(" "):
            top = line.split()[0]
        for name in re.findall(r"(?<= )[a-z_]+/", f" {line}" if not line.startswith(" ") else line):
            paths = [
                name,
                top + name,
                *(f"{top}{subfolder.name}/{name}" for subfolder in (ROOT / top).iterdir()),
            ]
            assert any((ROOT / path).is_dir() for path in paths), f"the tree shows {name}"
            seen += 1
    assert seen > 30


def test_every_folder_is_in_the_tree() -> None:
    for package in PACKAGES:
        for folder in sorted((ROOT / package).iterdir()):
            if (folder / "__init__.py").exists():
                assert f"{folder.name}/" in TREE, f"{folder}: name it in CONTRIBUTING's tree"


def test_the_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    named_targets = set(re.findall(r"(?:`|^)make ([a-z]+)", README, flags=re.M))
    assert {"demo", "test"} <= named_targets <= targets


BLOCKS = blocks(README)


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
                for parameter in group.commands[words[1]].params  # type: ignore[attr-defined]
                for flag in (*parameter.opts, *parameter.secondary_opts)
            }
            assert {word for word in words if word.startswith("--")} <= flags, line
            seen += 1
    assert seen > 5


@pytest.mark.proof
def test_every_block_runs_in_order(tmp_path: Path, shared: Path) -> None:
    """As printed, in a fresh directory, without the Hub."""
    assert run_blocks(BLOCKS, tmp_path, shared / "data") == 2


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len(README.splitlines()) <= 120
