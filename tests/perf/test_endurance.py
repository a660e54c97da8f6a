"""Long proofs: commands are killed, troubled and resumed; a build is soaked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.proof

SUPPORT = Path(__file__).parents[1] / "support"
KILLS, SOAK_MINUTES = 8, 1
#: A sample that fits the time; `kill_harness.py` without `--only` takes every command that writes.
SAMPLE = ("build", "score", "pair", "merge", "train dpo")


def run(script: str, *options: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(SUPPORT / script), *map(str, options)]
    return subprocess.run(line, capture_output=True, text=True)


def test_killed_and_troubled_every_command_ends_in_the_same_bytes() -> None:
    pytest.importorskip("torch")
    only = [word for name in SAMPLE for word in ("--only", name)]
    ran = run("kill_harness.py", "--kills", KILLS, "--problems", 1500, *only)
    if "run as root" in ran.stderr:
        pytest.skip("needs the right to mount a tmpfs")
    assert ran.returncode == 0, ran.stdout + ran.stderr[-6000:]
    kills, torn, resumed, identical, *faults = map(int, ran.stdout.splitlines()[-1].split()[1:])
    assert (kills, resumed, identical) == (KILLS, KILLS, KILLS) and not any(faults)
    assert torn >= KILLS // 3  # they fell into the writing of a checkpoint


def test_cycles_of_kills_leave_nothing_behind() -> None:
    ran = run("soak_harness.py", "--minutes", SOAK_MINUTES, "--cycles", 2)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-6000:]
    counts = {name: int(count) for count, name in re.findall(r"(\d+) (\w+)", ran.stdout)}
    assert counts["cycles"] >= 2 and counts["kills"] >= 1
