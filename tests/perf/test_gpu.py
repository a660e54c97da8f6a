"""The GPU benchmark runs at toy size without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.proof, pytest.mark.filterwarnings("default")]

SCRIPT = Path(__file__).parents[2] / "benchmarks/perf/gpu.py"


def run(*options: object) -> str:
    command = [sys.executable, SCRIPT, *options]
    process = subprocess.run(
        [str(argument) for argument in command], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout + process.stderr[-4000:]
    return process.stdout


def test_every_case_runs_at_toy_size(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run("--tiny", "--out", tmp_path / "gpu.json")
    rows = json.loads((tmp_path / "gpu.json").read_text())["rows"]
    assert len(rows) == 17
    assert {row["what"] for row in rows} == {"dpo", "sft", "prm", "score", "attention", "sampling"}
    for row in rows:
        if "error" in row:
            assert row["how"] in ("trl", "vllm", "flex") and row["error"] == "not installed", row
        elif row["what"] != "sampling":
            assert row["seconds"] > 0 and row["tokens"] > 0, row


def test_without_time_no_case_starts(tmp_path: Path) -> None:
    table = run("--tiny", "--minutes", 0, "--out", tmp_path / "gpu.json")
    assert "dpo ours tiny" in table and "no time left" in table


def test_without_a_gpu_it_says_what_it_would_measure(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    table = run("--out", tmp_path / "gpu.json")
    assert "would measure" in table and "prm ours 1.5B" in table and "sdpa 2048:512" in table
    assert not (tmp_path / "gpu.json").exists()
