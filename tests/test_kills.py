"""Every command that resumes ends in the same bytes after SIGKILL, at five points of its work.

A build also resumes on a disk that was full or read-only.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from killing import CommandResult, file_digests, run_counted
from writing_commands import Inputs, WritingCommand, list_commands

pytestmark = pytest.mark.proof

PROBLEMS = 200
#: Parts of the changes of files after which a command is killed.
POINTS = [
    pytest.param((0.5,), marks=pytest.mark.short_proof, id="half"),
    pytest.param((0.1, 0.3, 0.7, 0.9), id="others"),
]
NAMES = list(list_commands(Inputs(Path(), PROBLEMS)))


@dataclass(frozen=True)
class UndisturbedRun:
    """A run to the end.

    Attributes:
        changes: Number of changes of files.
        outcome: Digests of its output.
        sources: Digests of the datasets that it reads.
    """

    changes: int
    outcome: dict[str, str]
    sources: list[dict[str, str]]


class Runs:
    """Runs commands, always with the same output directory, because outcomes may name it."""

    def __init__(self, inputs: Inputs, folder: Path) -> None:
        self._inputs = inputs
        self._folder = folder
        self._undisturbed: dict[str, UndisturbedRun] = {}

    def out(self, command: WritingCommand) -> Path:
        """Return the output directory of a command."""
        return self._folder / command.name.replace(" ", "-")

    def start(
        self, command: WritingCommand, *, resume: bool = False, kill_at: int = 0
    ) -> CommandResult:
        """Run a command until it ends or is killed."""
        arguments = command.arguments(self.out(command))
        arguments += command.resume_options if resume else []
        return run_counted(
            arguments,
            self._inputs.env,
            self._inputs.interpreter,
            folder=self._folder,
            kill_at=kill_at,
        )

    def run_undisturbed(self, command: WritingCommand) -> UndisturbedRun:
        """Return the run that was not killed."""
        if command.name not in self._undisturbed:
            result = self.start(command)
            assert result.code == 0, result.stderr
            outcome = command.outcome(self.out(command))
            run = UndisturbedRun(result.changes, outcome, source_digests(command))
            self._undisturbed[command.name] = run
            self.clear()
        return self._undisturbed[command.name]

    def start_and_kill(self, command: WritingCommand, kill_at: int) -> None:
        """Kill a command; one that saves by the clock may end before, and is killed earlier."""
        while (result := self.start(command, kill_at=kill_at)).code == 0:
            self.clear()
            kill_at //= 2
            assert kill_at, "the command changes no files"
        assert result.code == -9, result.stderr

    def clear(self) -> None:
        """Delete all outputs."""
        shutil.rmtree(self._folder)
        self._folder.mkdir()


def source_digests(command: WritingCommand) -> list[dict[str, str]]:
    return [file_digests(source) for source in command.sources]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inputs]:
    pytest.importorskip("torch")
    inputs = Inputs(tmp_path_factory.mktemp("inputs"), PROBLEMS)
    inputs.make()
    yield inputs
    inputs.stop()


@pytest.fixture(scope="module")
def runs(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(inputs, tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("name", NAMES)
def test_a_killed_command_resumes_to_the_same_bytes(
    inputs: Inputs, runs: Runs, name: str, points: tuple[float, ...]
) -> None:
    command = list_commands(inputs)[name]
    undisturbed = runs.run_undisturbed(command)
    for point in points:
        runs.start_and_kill(command, max(1, round(point * undisturbed.changes)))
        result = runs.start(command, resume=any(runs.out(command).glob("*")))
        assert result.code == 0, result.stderr
        assert command.outcome(runs.out(command)) == undisturbed.outcome, point
        runs.clear()
    assert source_digests(command) == undisturbed.sources


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 400 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(disk)], check=True)


@pytest.mark.short_proof
def test_a_full_or_read_only_disk_loses_nothing(
    inputs: Inputs, runs: Runs, small_disk: Path
) -> None:
    command = list_commands(inputs)["build"]
    expected = runs.run_undisturbed(command).outcome
    disk_runs = Runs(inputs, small_disk)
    sealed = small_disk / "sealed"
    shutil.copytree(inputs.path("pairs"), sealed)
    sealed_digests = file_digests(sealed)
    full = disk_runs.start(command)
    assert full.code == 1 and "Traceback" not in full.stderr
    assert "the disk is full; free some space" in full.stderr and "--resume" in full.stderr
    remount(small_disk, "ro")
    read_only = disk_runs.start(command, resume=True)
    assert read_only.code == 1
    assert "the file system is read-only; choose another --out" in read_only.stderr
    assert file_digests(sealed) == sealed_digests
    remount(small_disk, "rw,size=64m")
    resumed = disk_runs.start(command, resume=True)
    assert resumed.code == 0, resumed.stderr
    assert command.outcome(disk_runs.out(command)) == expected
