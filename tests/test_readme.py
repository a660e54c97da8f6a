"""The README shows the tree and the commands as they are."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from hub_server import TOKEN, HubServer, client_env, running_hub

from fsdpo_data.cli.share import OUTPUTS
from fsdpo_data.exchange.formats import FORMATS
from fsdpo_data.exchange.stepwise import READERS
from fsdpo_data.models.resolve import MODELS
from fsdpo_data.problems.embedded import CHECKPOINT

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


#: Whether it is "not run" or "run in small", if not as printed; language; content.
BLOCKS = re.findall(
    r"(?:<!-- (.*?) by the test of this page: .*? -->\n)?```(bash|python)\n(.*?)```",
    README,
    flags=re.S,
)
#: What a block that needs a GPU, or gigabytes of the Hub, does here instead.
SMALLER = {
    "--samples 32": "--samples 2 --limit 2 --max-tokens 8",
    "--limit 200": "--limit 2 --samples 2 --max-tokens 8",
    "./my-sft": "{model}",
    "train.jsonl": "{data}/train/gsm8k/train.jsonl",
    "--suite ood": "--suite ood --data {data}/benchmarks --limit 1 --max-tokens 8",
    " DIR": " {data}/benchmarks",
    "bench/math": "{data}/benchmarks/math",
}


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


def fill(hub: HubServer, data: Path) -> None:
    """Give a Hub the problems that this page names, and the embedded model by another's name."""
    subjects = {file.stem: file for file in (data / "train/math").glob("*.jsonl")}
    files = {"main": data / "train/gsm8k/train.jsonl"}
    for repo, configs in (("openai/gsm8k", files), ("EleutherAI/hendrycks_math", subjects)):
        listed = [
            {"config_name": name, "data_files": [{"split": "train", "path": f"{name}.jsonl"}]}
            for name in configs
        ]
        card = f"---\n{json.dumps({'configs': listed})}\n---\n".encode()
        rows = {f"{name}.jsonl": file.read_bytes() for name, file in configs.items()}
        hub.add("dataset", repo, {"README.md": card, **rows})
    weights = {file.name: file.read_bytes() for file in CHECKPOINT.iterdir()}
    hub.add("model", MODELS["qwen2-7b-sft"].repo, weights)


def test_every_test_that_a_page_names_is_there() -> None:
    """A cell of a table of what works is worth as much as its test."""
    there = {file.name for file in (ROOT / "tests").rglob("test_*.py")}
    for file in (ROOT / "tests").rglob("test_*.py"):
        there |= set(re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8")))
    pages = [file.read_text(encoding="utf-8") for file in (ROOT / "docs").glob("*.md")]
    named = {name for page in pages for name in re.findall(r"`(test_[\w.]+)`", page)}
    assert len(named) > 20 and not named - there


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_every_command_of_the_other_pages_parses(page: Path) -> None:
    """Names, flags, what each of them takes, and formats."""
    seen = 0
    blocks = re.findall(r"```(?:bash)?\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)
    for line in "".join(blocks).replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and re.fullmatch(r"fsdpo-(data|train|bench)", words[0]):
            app = import_module(f"{words[0].replace('-', '_')}.cli.app").app
            group: Any = typer.main.get_command(app)
            given = group.commands[words[1]].make_context(words[1], words[2:]).params
            assert given.get("source") in (None, OUTPUTS, *READERS), line
            assert given.get("to") in (None, *FORMATS), line
            seen += 1
    assert seen or page.stem == "faults"


@pytest.mark.proof
def test_every_block_runs_in_order(tmp_path: Path, shared: Path) -> None:
    """As printed, in a fresh directory, without the Hub; what needs it or a GPU, in small."""
    scripts = Path(sys.executable).parent
    path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "PATH": path}
    ran = 0
    with running_hub() as hub:
        fill(hub, shared / "data")
        known = {"PATH": path, "PYTHONWARNINGS": "", "HF_TOKEN": TOKEN}
        online = client_env(hub.url, tmp_path / "user", **known)
        for how, language, body in BLOCKS:
            if how == "not run":
                continue
            for printed, smaller in SMALLER.items() if how else ():
                body = body.replace(printed, smaller.format(data=shared / "data", model=CHECKPOINT))
            shell = ["bash", "-euo", "pipefail", "-c"]
            line = [sys.executable, "-c"] if language == "python" else shell
            done = subprocess.run(
                [*line, body],
                cwd=tmp_path,
                env=online if how else offline,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, f"{body}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            ran += 1
    assert ran > 12
