"""Tests of Ctrl-C during a batch: the message names the resume command, and no sample is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
from command_line import press_ctrl_c
from hashes import hashes
from helpers import TEXTS

from fsdpo_data.models.prompts import get_template

#: Runs the command line with a sampler that takes its time, and does not get to the end unless it
#: takes none: however late Ctrl-C comes, there is something left to do.
SLOW = """
import itertools, sys, time
from fsdpo_data.engines.samplers.replay import ReplaySampler
replay, seconds, count = ReplaySampler._replay, float(sys.argv.pop(1)), itertools.count()
def slow(self, *asked):
    time.sleep(seconds if next(count) < 20 else 3000 * seconds)
    return replay(self, *asked)
ReplaySampler._replay = slow
from fsdpo_data.cli.app import main
main()
"""


def write_inputs(folder: Path, count: int) -> None:
    problems, recorded = folder / "problems.jsonl", folder / "recorded.jsonl"
    template = get_template("problem")
    with problems.open("wb") as questions, recorded.open("wb") as answers:
        for index in range(count):
            question = f"What is 20 + 22, the {index}th time?"
            completions = [
                {"text": f"{text} ({index})", "finish_reason": "stop", "n_tokens": 9, "seconds": 0}
                for text in TEXTS[:2]
            ]
            questions.write(orjson.dumps({"question": question, "answer": "42"}) + b"\n")
            record = {"prompt": template.render(question), "completions": completions}
            answers.write(orjson.dumps(record) + b"\n")


def command(folder: Path, out: str, seconds: float, *extra_arguments: str) -> list[str]:
    line = [sys.executable, "-c", SLOW, str(seconds), "build", "--samples", "2"]
    line += ["--problems", str(folder / "problems.jsonl"), "--engine", "replay"]
    line += ["--replay", str(folder / "recorded.jsonl"), "--workers", "1"]
    return [*line, "--out", str(folder / out), *extra_arguments]


def test_what_came_before_a_ctrl_c_is_kept_and_counted(tmp_path: Path) -> None:
    write_inputs(tmp_path, 40)
    assert subprocess.run(command(tmp_path, "whole", 0), capture_output=True).returncode == 0
    line = command(tmp_path, "stopped", 0.2)  # all in one batch
    log = tmp_path / "stopped/completions.jsonl"
    message = press_ctrl_c(line, log, wait=0.5)  # between two times that it saves
    saved = len(log.read_bytes().splitlines())
    assert 0 < saved < 40
    assert f"sample: {saved} of 40 are done" in message
    assert f"--out {tmp_path / 'stopped'} --resume\n" in message
    again = subprocess.run(
        command(tmp_path, "stopped", 0, "--resume"), capture_output=True, text=True
    )
    assert again.returncode == 0 and f"{saved} already done" in again.stderr
    assert hashes(tmp_path / "stopped") == hashes(tmp_path / "whole")
