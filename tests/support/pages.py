"""The blocks of README and of the site: found, and run as they are printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from hub_server import TOKEN, HubServer, client_env, running_hub
from openai_server import Script, serving

from fsdpo_data.models.resolve import MODELS
from fsdpo_data.problems.embedded import CHECKPOINT

EXAMPLES = Path(__file__).parents[2] / "examples"


class Block(NamedTuple):
    """Commands or Python of a page."""

    mode: str  #: "Not tested here", or "Tested in small"; empty if it runs as printed.
    language: str
    body: str


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page in their order."""
    matches = re.findall(
        r"(?:^\*(Not tested here|Tested in small): .*\*\n\n)?"
        r"```(bash|python)\n((?:.|\n)*?)```",
        page,
        flags=re.M,
    )
    return [Block(*match) for match in matches]


#: What a block that needs a GPU, a server, or gigabytes of the Hub does here instead.
SMALLER = {
    "--problems gsm8k --prm Qwen/Qwen2.5-Math-PRM-7B": (
        "--template problem --limit 8 --samples 8 --prm runs/tiny-prm"
    ),
    "--samples 32": "--samples 2 --limit 2 --max-tokens 8",
    "--limit 200": "--limit 2 --samples 2 --max-tokens 8",
    "--shard": "--limit 4 --samples 2 --max-tokens 8 --shard",
    "./my-sft": "{model}",
    "train.jsonl": "{data}/train/gsm8k/train.jsonl",
    "--suite ood": "--suite ood --data {data}/benchmarks --limit 1 --max-tokens 8",
    " DIR": " {data}/benchmarks",
    "bench/math": "{data}/benchmarks/math",
    "bench/gsm8k.jsonl": "{data}/benchmarks/gsm8k/test.jsonl",
    "http://HOST:8000/v1": "{server}",
    "--model NAME": "--model tiny",
    "org/name": "o/name",  # the organisation that the Hub of the tests has
}


def run_blocks(selected_blocks: Iterable[Block], folder: Path, data: Path) -> int:
    """Run blocks in order in a fresh directory; return how many there were.

    They are offline, but for small versions: these have a Hub with the problems that they name.
    """
    scripts = Path(sys.executable).parent
    path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "home"), "PATH": path}
    ran = 0
    examples = folder / "examples"
    if not examples.exists():
        examples.symlink_to(EXAMPLES)
    with running_hub() as hub, serving(Script()) as server:
        fill(hub, data)
        variables = {"PATH": path, "PYTHONWARNINGS": "", "HF_TOKEN": TOKEN}
        online = client_env(hub.url, folder / "user", **variables)
        for mode, language, body in selected_blocks:
            if mode == "Not tested here":
                continue
            for printed, smaller in SMALLER.items() if mode else ():
                replacement = smaller.format(data=data, model=CHECKPOINT, server=server)
                body = body.replace(printed, replacement)
            shell = ["bash", "-euo", "pipefail", "-c"]
            line = [sys.executable, "-c"] if language == "python" else shell
            done = subprocess.run(
                [*line, body],
                cwd=folder,
                env=online if mode else offline,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, f"{body}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            ran += 1
    return ran


def fill(hub: HubServer, data: Path) -> None:
    """Give a Hub the problems that the pages name, and the embedded model by another's name."""
    subjects = {file.stem: file for file in (data / "train/math").glob("*.jsonl")}
    files = {"main": data / "train/gsm8k/train.jsonl"}
    for repo, configs in (("openai/gsm8k", files), ("EleutherAI/hendrycks_math", subjects)):
        entries = [
            {"config_name": name, "data_files": [{"split": "train", "path": f"{name}.jsonl"}]}
            for name in configs
        ]
        card = f"---\n{json.dumps({'configs': entries})}\n---\n".encode()
        rows = {f"{name}.jsonl": file.read_bytes() for name, file in configs.items()}
        hub.add("dataset", repo, {"README.md": card, **rows})
    weights = {file.name: file.read_bytes() for file in CHECKPOINT.iterdir()}
    hub.add("model", MODELS["qwen2-7b-sft"].repo, weights)
