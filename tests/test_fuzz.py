"""Two thousand changed inputs: no traceback, no hang, at most 2 GB, no write outside ``--out``.

A hundred of them run with every change of the code, the others in `make proof`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "support"
FEW = 100
ALL = 2000


def fuzz(*options: object, script: str = "fuzz_harness.py") -> dict[str, int]:
    """Run a script of fuzzing; return the counts of its last line."""
    command = [sys.executable, str(SUPPORT / script), *map(str, options)]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-2000:] + process.stdout
    last_line = process.stdout.splitlines()[-1]
    return {name: int(count) for count, name in re.findall(r"(\d+) (\w+)", last_line)}


def test_a_hundred_changed_inputs_end_in_messages() -> None:
    counts = fuzz("--mutations", FEW, "--without-models")
    assert counts["mutations"] == FEW and counts["refused"] > FEW // 3


@pytest.mark.proof
def test_two_thousand_changed_inputs_end_in_messages() -> None:
    pytest.importorskip("torch")
    counts = fuzz("--first", FEW, "--mutations", ALL - FEW, "--workers", 2)
    assert counts["mutations"] == ALL - FEW and counts["refused"] > ALL // 3


@pytest.mark.proof
def test_changed_answers_of_the_hub_end_in_messages() -> None:
    counts = fuzz("--mutations", 150, script="fuzz_hub.py")
    assert counts["mutations"] == 150 and counts["refused"] > 50
