"""The message after Ctrl-C in a run."""

from __future__ import annotations

import sys
from pathlib import Path

from command_line import press_ctrl_c
from made_runs import written

from fsdpo_data.models.prompts import get_template

#: Runs the command line with a slow sampler that never finishes, so Ctrl-C always interrupts it.
SLOW_PROGRAM = """
import itertools, time
from fsdpo_data.engines.samplers.replay import ReplaySampler
replay, count = ReplaySampler._replay, itertools.count()
def slow(self, *arguments):
    time.sleep(0.2 if next(count) < 20 else 600)
    return replay(self, *arguments)
ReplaySampler._replay = slow
from fsdpo_bench.cli.app import main
main()
"""


def test_ctrl_c_prints_the_number_of_saved_problems(tmp_path: Path) -> None:
    questions = [f"What is 20 + 22, the {index}th time?" for index in range(40)]
    task = written(tmp_path / "sums.jsonl", [{"question": q, "answer": "42"} for q in questions])
    completions = [{"text": "The answer is 42.", "finish_reason": "stop", "n_tokens": 9}]
    template = get_template("problem")
    rows = [{"prompt": template.render(q), "completions": completions} for q in questions]
    line = [sys.executable, "-c", SLOW_PROGRAM, "run", "--engine", "replay", "--task", str(task)]
    line += ["--replay", str(written(tmp_path / "said.jsonl", rows)), "--template", "problem"]
    line += ["--batch-size", "5", "--workers", "1", "--out", str(tmp_path / "run")]
    log = tmp_path / "run/greedy/completions.jsonl"
    output = press_ctrl_c(line, log, wait=0.5)
    n_problems = len(log.read_bytes().splitlines())
    assert 0 < n_problems < 40
    assert f"sample: {n_problems} of 40 are done" in output
    assert f"--out {tmp_path / 'run'} --resume\n" in output
