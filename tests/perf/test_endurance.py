"""Long proofs: commands are killed and resumed, on full and read-only disks too."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.proof

SUPPORT = Path(__file__).parents[1] / "support"
KILLS = 12
SOAK_MINUTES = 1
#: A short selection; `kill_harness.py` without `--only` runs every command that writes.
COMMANDS = ("build", "score", "pair", "merge", "import outputs", "recipe", "train dpo")


def run(script: str, *options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SUPPORT / script), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.short_proof
def test_after_kills_and_bad_disks_every_command_ends_in_the_same_bytes() -> None:
    pytest.importorskip("torch")
    selection = [word for name in COMMANDS for word in ("--only", name)]
    process = run("kill_harness.py", "--kills", KILLS, "--problems", 1500, *selection)
    if "run as root" in process.stderr:
        pytest.skip("needs the right to mount a tmpfs")
    assert process.returncode == 0, process.stdout + process.stderr[-6000:]
    total_line = process.stdout.splitlines()[-1]
    kills, incomplete, resumed, identical, *faults = map(int, total_line.split()[1:])
    assert (kills, resumed, identical) == (KILLS, KILLS, KILLS) and not any(faults)
    assert incomplete >= KILLS // 3  # kills in the writing of a checkpoint


def test_cycles_of_kills_leave_nothing_behind() -> None:
    process = run("soak_harness.py", "--minutes", SOAK_MINUTES, "--cycles", 2)
    assert process.returncode == 0, process.stdout + process.stderr[-6000:]
    counts = {name: int(count) for count, name in re.findall(r"(\d+) (\w+)", process.stdout)}
    assert counts["cycles"] >= 2 and counts["kills"] >= 1
