"""SIGKILL at a change of a file: the kills need no clock, and hit the same state on any machine.

Between two changes, a kill leaves the same files at any time. So a process counts its own changes
below a folder, and kills itself just before one of them.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warm import WarmInterpreter

#: Files of a dataset, and reports on it, that contain the seconds of a model that runs.
TIMED_FILES = (
    *("completions.jsonl", "manifest.json", "README.md", ".lock"),
    *("results.json", "report.md", "report.html"),
)
FOLDER = "FSDPO_KILL_FOLDER"  #: Variable: the folder whose changes count.
KILL_AT = "FSDPO_KILL_AT"  #: Variable: the number of the change before which the process ends.
COUNT_FILE = "FSDPO_CHANGES_FILE"  #: Variable: the file that gets the number of changes.

#: Audit events that change a path, which is their first argument.
_EVENTS = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree")
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class CommandResult:
    """The end of a command.

    Attributes:
        code: Its exit status; negative for a signal.
        stderr: Its output on stderr.
        changes: Number of its changes; 0 if it was killed.
    """

    code: int
    stderr: str
    changes: int


class ChangeCounter:
    """Counts the changes of this process, and kills it before one of them.

    Args:
        folder: The folder whose changes count.
        kill_at: Number of the change before which the process ends; 0 for none.
    """

    def __init__(self, folder: str, kill_at: int) -> None:
        self.changes = 0
        self._folder = os.path.realpath(folder)
        self._kill_at = kill_at
        self._pid = os.getpid()

    def install(self) -> None:
        """Count from now on."""
        sync = os.fsync

        def sync_and_count(file: Any) -> None:
            descriptor = file if isinstance(file, int) else file.fileno()
            self._count(os.readlink(f"/proc/self/fd/{descriptor}"))
            sync(file)

        os.fsync = sync_and_count
        sys.addaudithook(self._check_event)

    def _check_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITE_FLAGS
        if is_write or event in _EVENTS:
            self._count(arguments[0])

    def _count(self, path: Any) -> None:
        if isinstance(path, int) or os.getpid() != self._pid:
            return
        if not os.path.realpath(os.fsdecode(path)).startswith(self._folder):
            return
        self.changes += 1
        if self.changes == self._kill_at:
            os.kill(self._pid, signal.SIGKILL)


def count_changes() -> ChangeCounter | None:
    """Start a counter if the environment asks for it."""
    if FOLDER not in os.environ:
        return None
    counter = ChangeCounter(os.environ[FOLDER], int(os.environ[KILL_AT]))
    counter.install()
    return counter


def run_counted(
    command: Sequence[str],
    env: Mapping[str, str],
    interpreter: WarmInterpreter,
    *,
    folder: Path,
    kill_at: int = 0,
) -> CommandResult:
    """Run a command of ``python -m``.

    Args:
        command: The command line.
        env: Its environment.
        interpreter: Starts the command.
        folder: The folder whose changes count.
        kill_at: Number of the change before which the command is killed; 0 for none.
    """
    with (
        tempfile.TemporaryFile() as out,
        tempfile.NamedTemporaryFile() as err,
        tempfile.NamedTemporaryFile() as count,
    ):
        variables = {FOLDER: str(folder), KILL_AT: str(kill_at), COUNT_FILE: count.name}
        child = interpreter.start(command, {**env, **variables}, out.fileno(), err.fileno())
        code = child.wait()
        stderr = Path(err.name).read_text(errors="replace")
        changes = int(Path(count.name).read_text() or 0)
    return CommandResult(code, stderr, changes)


def file_digests(root: Path, without: Sequence[str] = (".lock",)) -> dict[str, str]:
    """Return the SHA-256 of every file in a directory, except for some file and folder names."""
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and not set((name := path.relative_to(root).as_posix()).split("/")) & set(without)
    }
