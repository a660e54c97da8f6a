"""The scripts of the page about several machines: bash parses them, and the array merges."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from hashes import hashes
from helpers import RIGHT, WRONG
from pages import blocks
from slurm import JOBS_VARIABLE, install_slurm, read_jobs

from fsdpo_data.core.sampling import Completion
from fsdpo_data.models.prompts import get_template

PAGE = Path(__file__).parents[1] / "docs/howto/slurm.md"
SCRIPTS = [
    block.body
    for block in blocks(PAGE.read_text(encoding="utf-8"))
    if block.body.startswith("#!/bin/bash")
]
#: Folders of programs: of this Python, and of the system.
PROGRAMS = f"{Path(sys.executable).parent}:{os.defpath}"
#: Environment of a machine.
MACHINE = {"PATH": PROGRAMS, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}


@pytest.mark.parametrize("script", SCRIPTS)
def test_bash_parses_each_script(script: str) -> None:
    ran = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def write_recorded_samples(folder: Path) -> str:
    """Write problems and recorded samples, and return the options that build from them."""
    template = get_template("problem")
    questions = [f"What is 20 + 22, the {index}th time?" for index in range(4)]
    problems = [{"question": question, "answer": "42"} for question in questions]
    samples = [asdict(Completion(text, "stop", 9, seconds=0.1)) for text in (RIGHT, WRONG)]
    recorded = [{"prompt": template.render(text), "completions": samples} for text in questions]
    for name, rows in {"problems": problems, "recorded": recorded}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    replay = "--engine replay --replay recorded.jsonl"
    return f"--problems problems.jsonl --samples 2 --template problem {replay}"


def test_an_array_merges_and_continues_after_a_failure(tmp_path: Path) -> None:
    options = write_recorded_samples(tmp_path)
    command = ["fsdpo-data", "build", *options.split(), "--out", "runs/local"]
    subprocess.run(command, cwd=tmp_path, env=MACHINE, check=True, capture_output=True)
    [script] = [script for script in SCRIPTS if "--array" in script]
    script = script.replace("--model qwen2-7b-sft --problems gsm8k", options)
    script = script.replace("SHARDS=8", "SHARDS=2")
    install_slurm(tmp_path)
    environment = {**MACHINE, "PATH": f"{tmp_path}:{PROGRAMS}", JOBS_VARIABLE: str(tmp_path)}

    def submit() -> None:
        command = ["bash", "-c", script]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)

    shards = tmp_path / "runs/parts"
    shards.mkdir(parents=True)
    (shards / "2").write_text("a file in place of a directory")  # the second shard fails
    submit()
    assert read_jobs(tmp_path) == {"1": {"1": "COMPLETED", "2": "FAILED"}, "2": {}}
    assert not (tmp_path / "runs/qwen").exists()
    (shards / "2").unlink()
    finished = hashes(shards / "1")
    submit()
    assert read_jobs(tmp_path)["3"] == {"1": "COMPLETED", "2": "COMPLETED"}
    assert hashes(shards / "1") == finished
    assert hashes(tmp_path / "runs/qwen") == hashes(tmp_path / "runs/local")
