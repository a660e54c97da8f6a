"""Start a command, watch its phases, kill it, and count the processes that it leaves.

`kill_harness.py` and `soak_harness.py` share this module. Only the command's own process is killed,
not its process group; a mark in the environment identifies the processes that it leaves. Full and
read-only disks are file systems in memory, and mounting them needs root.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from warm import ForkedCommand, WarmInterpreter

MARK = "FSDPO_MARK"
#: Seconds in which the child processes of a killed command must end.
GRACE_SECONDS = 3.0
#: Seconds after which a command counts as hanging.
LIMIT_SECONDS = 600.0

#: A progress line, such as ``sample: 48 to do``; its name is the phase.
_PHASE = re.compile(r"^([\w@/+.: -]+?): \d+ to do", re.M)
START = "start"


@dataclass(frozen=True)
class KillMoment:
    """The time and the signal of a kill.

    Attributes:
        phase: ``start``, the name of a progress line, or a glob of files in the output directory.
        delay: Seconds between the start of the phase and the kill.
        signal: SIGKILL or SIGTERM.
    """

    phase: str
    delay: float
    signal: int = signal.SIGKILL


@dataclass
class CommandResult:
    """The end of a command.

    Attributes:
        code: Its exit status; negative for a signal.
        stderr: Its output on stderr.
        phase_starts: Seconds from the start to each phase; the phase ``end`` is the end.
        orphans: Command lines of the processes that it left.
    """

    code: int
    stderr: str
    phase_starts: dict[str, float] = field(default_factory=dict)
    orphans: list[str] = field(default_factory=list)

    @property
    def last_phase(self) -> str:
        """The phase in which the command ended."""
        phases = (name for name in self.phase_starts if name != "end")
        return max(phases, key=self.phase_starts.__getitem__)

    @property
    def ended_cleanly(self) -> bool:
        """Whether the command ended with success or with a message: no signal, no traceback."""
        has_explanation = self.code == 0 or "error: " in self.stderr
        return self.code in (0, 1) and has_explanation and "Traceback" not in self.stderr


def run_watched(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    folder: Path,
    globs: Sequence[str] = (),
    kill: KillMoment | None = None,
    interpreter: WarmInterpreter | None = None,
) -> CommandResult:
    """Run a command to its end, or until it is killed.

    Args:
        command: The command line.
        env: Its environment.
        folder: Directory in which ``globs`` are searched.
        globs: Files whose appearance starts a phase.
        kill: Moment of the kill; None lets the command end. A command that ends earlier is not
            killed.
        interpreter: Starts commands of ``python -m`` by forking, which is faster.
    """
    mark = uuid.uuid4().hex
    marked_env = {**env, MARK: mark}
    started = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        child: subprocess.Popen[bytes] | ForkedCommand
        if interpreter and command[1] == "-m":
            child = interpreter.start(command, marked_env, out.fileno(), err.fileno())
        else:
            child = subprocess.Popen(command, stdout=out, stderr=err, env=marked_env)
        phase_starts = {START: 0.0}
        while child.poll() is None:
            elapsed = time.monotonic() - started
            for phase in _new_phases(Path(err.name), folder, globs, phase_starts):
                phase_starts[phase] = elapsed
            is_due = (
                kill is not None
                and kill.phase in phase_starts
                and elapsed >= phase_starts[kill.phase] + kill.delay
            )
            if is_due or elapsed > LIMIT_SECONDS:
                child.send_signal(kill.signal if kill else signal.SIGKILL)
                break
            time.sleep(0.002)
        child.wait()
        phase_starts["end"] = time.monotonic() - started
        stderr = Path(err.name).read_text(errors="replace")
    return CommandResult(
        code=child.returncode,
        stderr=stderr,
        phase_starts=phase_starts,
        orphans=end_orphans(mark, interpreter),
    )


def _new_phases(
    stderr_file: Path, folder: Path, globs: Sequence[str], seen: Mapping[str, float]
) -> list[str]:
    """Return the phases that have started and are not in ``seen``."""
    phases = dict.fromkeys(_PHASE.findall(stderr_file.read_text(errors="replace")))
    phases |= {glob: None for glob in globs if glob not in seen and any(folder.glob(glob))}
    return [phase for phase in phases if phase not in seen]


def end_orphans(mark: str, interpreter: WarmInterpreter | None = None) -> list[str]:
    """Wait for the processes that a command left, kill the remaining ones, and return them.

    A process is returned as the end of its command line.
    """
    deadline = time.monotonic() + GRACE_SECONDS
    while (processes := list(_living(mark, interpreter))) and time.monotonic() < deadline:
        time.sleep(0.05)
    command_lines = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            command_lines.append(" ".join(process.cmdline())[-60:])
            process.kill()
    return command_lines


def _living(mark: str, interpreter: WarmInterpreter | None) -> Iterator[psutil.Process]:
    """Yield the living processes with the mark, and all children of a warm interpreter."""
    children = set(interpreter.children()) if interpreter else set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_alive = process.status() != psutil.STATUS_ZOMBIE
            if is_alive and (process in children or process.environ().get(MARK) == mark):
                yield process


class Disk:
    """A file system in memory that can be filled up or made read-only.

    Args:
        path: The mount point.
        size: Size in bytes.
    """

    def __init__(self, path: Path, size: int = 1 << 30) -> None:
        self.path = path
        self.size = size

    @contextlib.contextmanager
    def mount(self) -> Iterator[Path]:
        """Mount the file system.

        Raises:
            SystemExit: if this process has no right to mount.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", str(self.path)]
        if subprocess.run(command, capture_output=True).returncode != 0:
            sys.exit("error: full disks are file systems in memory: run as root to mount them.")
        try:
            yield self.path
        finally:
            subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    def fill(self, free_bytes: int) -> None:
        """Shrink the file system to so many free bytes."""
        status = os.statvfs(self.path)
        used_bytes = (status.f_blocks - status.f_bfree) * status.f_frsize
        self._remount(f"size={used_bytes + free_bytes}")

    def make_read_only(self) -> None:
        """Refuse every write."""
        self._remount("ro")

    def heal(self) -> None:
        """Make the disk writable and give it its full size."""
        self._remount(f"rw,size={self.size}")

    def _remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.path)], check=True)


def file_digests(root: Path, without: Sequence[str] = (".lock",)) -> dict[str, str]:
    """Return the SHA-256 of every file in a directory, except for some file and folder names."""
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and not set((name := path.relative_to(root).as_posix()).split("/")) & set(without)
    }
