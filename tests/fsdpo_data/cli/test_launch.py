"""Tests of ``--print-launch``: bash can parse the scripts, and they run the same command."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import run

from fsdpo_data.cli.launch import DATA_SCRIPTS, TRAIN_SCRIPTS, launch_script
from fsdpo_train.cli.app import main as train

BUILD = ["build", "--model", "a b", "--out", "runs/a b", "--shard=1/2", "--print-launch", "sbatch"]


def check_syntax(script: str) -> str:
    """Return a script that bash can parse."""
    ran = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return script


@pytest.mark.parametrize("launcher", TRAIN_SCRIPTS)
def test_training_is_launched_by_torchrun(launcher: str) -> None:
    arguments = [
        "dpo",
        "runs/pairs",
        "--out",
        "runs/it's",
        "--print-launch",
        launcher,
        "--lr",
        "1e-6",
    ]
    script = check_syntax(launch_script(TRAIN_SCRIPTS, launcher, "fsdpo-train", arguments))
    assert "-m fsdpo_train dpo runs/pairs --out 'runs/it'\"'\"'s' --lr 1e-6" in script
    assert "torchrun --nnodes" in script and "print-launch" not in script


def test_an_array_writes_shards_that_its_last_line_merges(tmp_path: Path) -> None:
    script = check_syntax(launch_script(DATA_SCRIPTS, "sbatch", "fsdpo-data", BUILD))
    assert "fsdpo-data merge 'runs/a b-shards'/* --out 'runs/a b'" in script
    # What a task of the array would run, word for word.
    environment = {"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "4", "PATH": str(tmp_path)}
    (tmp_path / "srun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    bash = str(shutil.which("bash"))
    ran = subprocess.run([bash], input=script, env=environment, capture_output=True, text=True)
    expected_call = "fsdpo-data|build|--model|a b|--shard|2/4|--out|runs/a b-shards/2"
    assert ran.stdout.split("\n")[:-1] == expected_call.split("|")


def test_a_ray_cluster_gets_the_engine() -> None:
    arguments = ["build", "--engine", "vllm", "--print-launch=ray"]
    script = check_syntax(launch_script(DATA_SCRIPTS, "ray", "fsdpo-data", arguments))
    assert "fsdpo-data build --engine ray" in script and "ray start --head" in script


def test_the_command_line_prints_it_and_does_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, output, _ = run(capsys, "build", "--out", str(out), "--print-launch", "sbatch")
    assert code == 0 and f"--out {out}-shards" in check_syntax(output) and not out.exists()
    code, _, err = run(capsys, "build", "--out", str(out), "--print-launch", "slurm")
    assert code == 1 and "--print-launch slurm: expected sbatch or ray." in err
    code, _, err = run(capsys, "build", "--print-launch", "sbatch")
    assert code == 1 and "needs --out" in err
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as caught:
        line = ["fsdpo-train", "sft", "a.jsonl", "--model", "tiny", "--out", str(out)]
        patch.setattr("sys.argv", [*line, "--print-launch", "torchrun"])
        train()
    assert not caught.value.code and "-m fsdpo_train sft a.jsonl" in check_syntax(
        capsys.readouterr()[0]
    )
