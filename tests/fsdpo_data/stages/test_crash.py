"""Fault tests: builds killed at random moments, full disks and read-only disks."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from hashes import hashes
from helpers import TEXTS, build_spec
from paired_data import paired_dataset

from fsdpo_data.answers.grader import GRADER_NAME

pytestmark = pytest.mark.proof

KILLS = 20
PROBLEMS = 6_000


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write so many problems and recorded completions that a build takes seconds."""
    folder = tmp_path_factory.mktemp("inputs")
    problems, recorded = folder / "problems.jsonl", folder / "recorded.jsonl"
    template = build_spec().template
    with problems.open("wb") as questions, recorded.open("wb") as answers:
        for index in range(PROBLEMS):
            question = f"What is 20 + 22, the {index}th time?"
            texts = [f"{text} ({index})" for text in TEXTS[:2]] * 4
            completions = [
                {"text": text, "finish_reason": "stop", "n_tokens": 9, "seconds": 0.001}
                for text in texts
            ]
            questions.write(orjson.dumps({"question": question, "answer": "42"}) + b"\n")
            record = {"prompt": template.render(question), "completions": completions}
            answers.write(orjson.dumps(record) + b"\n")
    return problems, recorded


def command(inputs: tuple[Path, Path], out: Path, *extra_arguments: str) -> list[str]:
    problems, recorded = inputs
    line = [sys.executable, "-m", "fsdpo_data", "build", "--problems", str(problems)]
    line += [
        "--samples",
        "8",
        "--engine",
        "replay",
        "--replay",
        str(recorded),
        "--batch-size",
        "16",
    ]
    return [*line, "--out", str(out), *extra_arguments]


def run(
    inputs: tuple[Path, Path], out: Path, *extra_arguments: str
) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(command(inputs, out, *extra_arguments), capture_output=True, text=True)
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran


def kill_after(line: list[str], phase: str, delay: float) -> str:
    """Kill a build some seconds after it begins a phase; return the phase that was interrupted.

    The function waits for the build's progress line, so the kills reach every phase on fast and
    slow machines.
    """
    child = subprocess.Popen(
        line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert child.stderr is not None
    progress_line = "start"
    while phase != "start" and not progress_line.startswith(phase):
        progress_line = child.stderr.readline()
        assert progress_line, f"the build ended and never reached {phase}"
    time.sleep(delay)
    os.killpg(child.pid, signal.SIGKILL)
    return [progress_line, *child.communicate()[1].splitlines()][-1].split(":")[0]


def test_a_build_killed_at_random_moments_resumes_to_the_same_bytes(
    inputs: tuple[Path, Path], tmp_path: Path
) -> None:
    started = time.monotonic()
    assert run(inputs, tmp_path / "whole").returncode == 0
    expected_hashes, seconds = hashes(tmp_path / "whole"), time.monotonic() - started
    out, draw, phases = tmp_path / "killed", random.Random(0), []
    for kill in range(KILLS):
        phase = ("start", "annotate", "validate")[kill % 3] if out.exists() else "sample"
        delay = draw.uniform(0, 0.1 if phase == "sample" else 0.4) * seconds
        phases.append(kill_after(command(inputs, out, "--resume"), phase, delay))
        if (out / "manifest.json").exists():
            assert hashes(out) == expected_hashes
            shutil.move(out, tmp_path / f"sealed{kill}")
    print(f"killed during: {phases}")
    assert len(set(phases)) >= 2, "all kills were in one phase"
    assert run(inputs, out, "--resume").returncode == 0
    assert hashes(out) == expected_hashes


def test_the_error_for_another_temperature_names_it(
    inputs: tuple[Path, Path], tmp_path: Path
) -> None:
    first, other = ("--temperature", "0.8"), ("--temperature", "1.0", "--resume")
    assert run(inputs, tmp_path / "run", "--limit", "5", *first).returncode == 0
    ran = run(inputs, tmp_path / "run", "--limit", "5", *other)
    assert ran.returncode == 1
    assert "sampling.temperature: 0.8 in the run, 1.0 now" in ran.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 4 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_loses_nothing(
    inputs: tuple[Path, Path], tmp_path: Path, small_disk: Path
) -> None:
    assert run(inputs, small_disk / "sealed", "--limit", "50").returncode == 0
    sealed = hashes(small_disk / "sealed")
    full = run(inputs, small_disk / "run")
    assert full.returncode == 1
    assert "the disk is full; free some space" in full.stderr and "--resume" in full.stderr
    assert hashes(small_disk / "sealed") == sealed
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert run(inputs, small_disk / "run", "--resume").returncode == 0
    assert run(inputs, tmp_path / "whole").returncode == 0
    assert hashes(small_disk / "run") == hashes(tmp_path / "whole")


@pytest.mark.parametrize(
    ("line", "file"),
    [
        (["grade", "--grader", f"{GRADER_NAME}+tolerance=0.01", "--out", "OUT"], "OUT/solutions/"),
        (["pair", "--max-pairs", "1", "--out", "OUT"], "OUT/pairs/"),
        (["export", "--to", "trl-sft", "--out", "OUT"], "OUT/sft.jsonl"),
    ],
)
def test_the_error_for_a_full_disk_names_the_file(
    tmp_path: Path, small_disk: Path, line: list[str], file: str
) -> None:
    source, out = paired_dataset(tmp_path, problems=400), small_disk / "out"
    (small_disk / "filler").write_bytes(bytes((4 << 20) - 24_000))
    command = [argument.replace("OUT", str(out)) for argument in line]
    command = [sys.executable, "-m", "fsdpo_data", command[0], str(source), *command[1:]]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 1, ran.stderr
    assert f"Cannot write to {file.replace('OUT', str(out))}" in ran.stderr
    assert "the disk is full" in ran.stderr and "Traceback" not in ran.stderr
    assert not list(out.rglob("*.tmp"))
    (small_disk / "filler").unlink()
    again = [*command, "--resume"] if line[0] != "export" else command
    assert subprocess.run(again, capture_output=True).returncode == 0


def test_the_error_for_a_read_only_disk_says_so(
    inputs: tuple[Path, Path], small_disk: Path
) -> None:
    assert run(inputs, small_disk / "run", "--limit", "50").returncode == 0
    sealed = hashes(small_disk / "run")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for out in (small_disk / "run", small_disk / "new"):
        ran = run(inputs, out, "--limit", "50", "--resume")
        assert ran.returncode == 1
        assert "the file system is read-only; choose another --out" in ran.stderr
    assert hashes(small_disk / "run") == sealed
