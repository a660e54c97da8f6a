"""Start a command, see what it is at, kill it, and count what it leaves behind.

Shared by `kill_harness.py` and `soak_harness.py`. A command is killed alone, not with its process
group: whatever lives on is found by a mark in its environment. Full and read-only disks are file
systems in memory, which takes the right to mount them.
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
from warm import Child, Warm

MARK = "FSDPO_MARK"
#: Seconds that the processes of a killed command may take to notice.
GRACE = 3.0
#: Seconds after which a command counts as hanging.
LIMIT = 600.0

_PHASE = re.compile(r"^([\w@/+.: -]+?): \d+ to do", re.M)
START = "start"


@dataclass(frozen=True)
class Moment:
    """When to kill: some seconds after a phase begins, and by which signal.

    Attributes:
        phase: ``start``, what the command says it is at, or a glob of files below its directory.
        delay: Seconds.
        signal: SIGKILL or SIGTERM.
    """

    phase: str
    delay: float
    signal: int = signal.SIGKILL


@dataclass
class Watched:
    """What became of a command.

    Attributes:
        code: Its exit status; negative for a signal.
        said: Its stderr.
        seen: When each phase was first seen, in seconds from the start; the end is ``end``.
        orphans: Names of the processes that outlived it.
    """

    code: int
    said: str
    seen: dict[str, float] = field(default_factory=dict)
    orphans: list[str] = field(default_factory=list)

    @property
    def last(self) -> str:
        """The phase it ended in."""
        return max((name for name in self.seen if name != "end"), key=self.seen.__getitem__)

    @property
    def graceful(self) -> bool:
        """Whether it ended by itself, done or with a message: no signal, no traceback."""
        told = self.code == 0 or "error: " in self.said
        return self.code in (0, 1) and told and "Traceback" not in self.said


def watched(
    line: Sequence[str],
    env: Mapping[str, str],
    *,
    below: Path,
    globs: Sequence[str] = (),
    kill: Moment | None = None,
    warm: Warm | None = None,
) -> Watched:
    """Run a command to its end, or to the moment when it is killed.

    Args:
        line: The command.
        env: Its environment.
        below: Directory that ``globs`` are looked for in.
        globs: Files whose appearance begins a phase.
        kill: When to kill it; None to let it end. A command that ends before then is not killed.
        warm: Starts what is a ``python -m``, if there is one.
    """
    mark, started = uuid.uuid4().hex, time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        child: subprocess.Popen[bytes] | Child
        if warm and line[1] == "-m":
            child = warm.start(line, {**env, MARK: mark}, out.fileno(), err.fileno())
        else:
            child = subprocess.Popen(line, stdout=out, stderr=err, env={**env, MARK: mark})
        result = Watched(0, "", {START: 0.0})
        while child.poll() is None:
            now = time.monotonic() - started
            for phase in _new_phases(Path(err.name), below, globs, result.seen):
                result.seen[phase] = now
            due = kill and result.seen.get(kill.phase, now) + kill.delay
            if (kill and kill.phase in result.seen and now >= due) or now > LIMIT:
                child.send_signal(kill.signal if kill else signal.SIGKILL)
                break
            time.sleep(0.002)
        child.wait()
        result.seen["end"] = time.monotonic() - started
        result.code, result.said = child.returncode, Path(err.name).read_text(errors="replace")
    result.orphans = orphans(mark, warm)
    return result


def _new_phases(
    said: Path, below: Path, globs: Sequence[str], seen: Mapping[str, float]
) -> list[str]:
    """Return the phases that have begun and were not seen before."""
    found = dict.fromkeys(_PHASE.findall(said.read_text(errors="replace")))
    found |= {glob: None for glob in globs if glob not in seen and any(below.glob(glob))}
    return [phase for phase in found if phase not in seen]


def orphans(mark: str, warm: Warm | None = None) -> list[str]:
    """Wait for what a command has left to end; kill what does not, and return the names."""
    deadline = time.monotonic() + GRACE
    while (left := list(_left(mark, warm))) and time.monotonic() < deadline:
        time.sleep(0.05)
    names = []
    for process in left:
        with contextlib.suppress(psutil.Error):
            names.append(" ".join(process.cmdline())[-60:])
            process.kill()
    return names


def _left(mark: str, warm: Warm | None) -> Iterator[psutil.Process]:
    """Yield the marked processes, and those below a warm interpreter."""
    below = set(warm.left()) if warm else set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and (process in below or process.environ().get(MARK) == mark):
                yield process


class Disk:
    """A file system in memory that can be filled up or made read-only.

    Args:
        path: Where it is mounted.
        size: Its size in bytes.
    """

    def __init__(self, path: Path, size: int = 1 << 30) -> None:
        self.path, self.size = path, size

    @contextlib.contextmanager
    def mounted(self) -> Iterator[Path]:
        """Mount it.

        Raises:
            SystemExit: if this process may not.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        line = ["mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", str(self.path)]
        if subprocess.run(line, capture_output=True).returncode != 0:
            sys.exit("error: full disks are file systems in memory: run as root to mount them.")
        try:
            yield self.path
        finally:
            subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    def fill(self, left: int) -> None:
        """Leave so many bytes free."""
        found = os.statvfs(self.path)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        self._remount(f"size={used + left}")

    def read_only(self) -> None:
        """Refuse every write."""
        self._remount("ro")

    def heal(self) -> None:
        """Make it as it was."""
        self._remount(f"rw,size={self.size}")

    def _remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.path)], check=True)


def digests(root: Path, without: Sequence[str] = (".lock",)) -> dict[str, str]:
    """Return the SHA-256 of every file below a directory, but for some names and folders."""
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and not set((name := path.relative_to(root).as_posix()).split("/")) & set(without)
    }
