"""Every stage of `make real` at toy size, with the embedded model, and its tables."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fsdpo_data.problems.embedded import CHECKPOINT
from fsdpo_data.problems.embedded.generator import make_problems

EVIDENCE = Path(__file__).parents[2] / "benchmarks/evidence"
#: Sizes for a minute on a CPU; the other values are those of `gpu.toml`.
TOY_SIZES = {
    "jobs": 2,
    "dtype": "float32",
    "template": "problem",
    "train_problems": 12,
    "samples": 4,
    "max_tokens": 128,
    "rollouts": 2,
    "select_options": "--per-problem 2",
    "test_problems": 6,
    "policy_problems": 4,
    "policy_samples": 2,
    "seeds": [0],
}
TOY_OPTIONS = {
    "prm_options": "--max-steps 1",
    "policy_options": "--max-steps 1",
    "pair_options": "--no-require-outcome",
}


def write_toml(sizes: dict[str, object], file: Path) -> None:
    """Write sizes as a TOML file; JSON values are TOML values."""
    minutes = sizes.pop("minutes")
    lines = [f"{key} = {json.dumps(value)}" for key, value in sizes.items()]
    assert isinstance(minutes, dict)
    lines += ["[minutes]", *(f"{kind} = {limit}" for kind, limit in minutes.items())]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_problems(folder: Path) -> None:
    """Write generated training and test problems, and rows in ProcessBench's format."""
    folder.mkdir()
    for split in ("train", "test"):
        rows = [problem.to_row() for problem in make_problems(split, 20, 0)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
    rows = [
        {"id": f"row-{index}", "problem": f"What is {index} + 1?", "label": label}
        | {"steps": [f"{index} + 1 = {index + 1}", f"It is {index + 2}."]}
        for index, label in enumerate((1, -1, 0, -1))
    ]
    (folder / "processbench.json").write_text(json.dumps(rows), encoding="utf-8")


def run_script(*arguments: object) -> str:
    """Run `real.py` and return its output."""
    command = [sys.executable, str(EVIDENCE / "real.py"), *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-5000:]
    return process.stdout


@pytest.mark.proof
def test_every_stage_of_a_gpu_runs_at_toy_size(tmp_path: Path) -> None:
    sizes = tomllib.loads((EVIDENCE / "real/gpu.toml").read_text(encoding="utf-8"))
    write_toml(sizes | TOY_SIZES | TOY_OPTIONS, tmp_path / "toy.toml")
    write_problems(tmp_path / "problems")
    arguments = ("run", tmp_path / "toy.toml", "--model", CHECKPOINT)
    folders = ("--out", tmp_path / "runs [1]", "--results", tmp_path / "results")
    printed = run_script(*arguments, "--problems", tmp_path / "problems", *folders)
    for prm in sizes["prms"]:
        assert f"prm-{prm}: done" in printed
    for policy in sizes["policies"]:
        assert f"{policy}-seed0-greedy: done" in printed
    _, _, tables = printed.partition("| choice (6 problems)")
    assert "| best of 4: PQM on Monte-Carlo labels |" in tables
    assert "| Full-Step-DPO, γ 4 | 1 |" in tables and "(4 rows)" in tables
    second = run_script(*arguments, "--problems", tmp_path / "problems", *folders)
    assert "$ " not in second and second.strip() in printed
