"""An interpreter that has imported everything, and forks: each command is a process of its own.

Importing takes most of the time of commands that are killed in the middle. A forked process is
killed and waited for like any other; what outlives it becomes a child of this one.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import psutil

#: What commands import, so far as that starts no thread.
MODULES = (
    "accelerate", "orjson", "pyarrow.parquet", "pydantic", "scipy.special",
    "torch", "transformers", "transformers.trainer", "fsdpo_bench.cli.app", "fsdpo_data.api",
    "fsdpo_data.cli.app", "fsdpo_data.engines.scorers.prm", "fsdpo_train.cli.app",
    "fsdpo_train.preference.train", "fsdpo_train.prm.train", "fsdpo_train.sft.train",
)  # fmt: skip
_CHILD_SUBREAPER = 36  # of prctl


class Child:
    """A command that was forked; with the methods of ``subprocess.Popen`` that are needed."""

    def __init__(self, warm: Warm, pid: int) -> None:
        self._warm, self.pid = warm, pid

    @property
    def returncode(self) -> int:
        """Return the exit status; negative for a signal."""
        return self._warm.ended[self.pid]

    def poll(self) -> int | None:
        """Return the exit status if it has ended."""
        self._warm.listen(0)
        return self._warm.ended.get(self.pid)

    def wait(self) -> int:
        """Wait for its end."""
        while self.poll() is None:
            self._warm.listen(1)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal; it may have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class Warm:
    """Starts commands of ``python -m module`` by forking.

    Args:
        env: The environment to import in.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self.ended: dict[int, int] = {}
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line = [sys.executable, __file__, str(theirs.fileno())]
        self._process = subprocess.Popen(line, env=env, pass_fds=[theirs.fileno()])
        theirs.close()
        assert self._socket.recv(100) == b"ready"

    def start(self, line: Sequence[str], env: Mapping[str, str], out: int, err: int) -> Child:
        """Start ``line``, whose second word is ``-m``, with these files for its output."""
        assert line[1] == "-m"
        told = {"line": line[2:], "env": dict(env), "cwd": str(Path.cwd())}
        socket.send_fds(self._socket, [json.dumps(told).encode()], [out, err])
        while True:
            said = json.loads(self._socket.recv(1000))
            if "started" in said:
                return Child(self, said["started"])
            self.ended[said["ended"]] = said["status"]

    def listen(self, seconds: float) -> None:
        """Hear which commands have ended, for so long at most."""
        while select.select([self._socket], [], [], seconds)[0]:
            said = json.loads(self._socket.recv(1000))
            self.ended[said["ended"]] = said["status"]
            seconds = 0

    def left(self) -> list[psutil.Process]:
        """Return what runs below it: once a command has ended, what it has left."""
        return psutil.Process(self._process.pid).children(recursive=True)

    def stop(self) -> None:
        """End it."""
        self._socket.close()
        self._process.wait()


def _serve(own: socket.socket) -> None:
    """Fork what is asked for until nobody asks any more; say what has ended."""
    commands: set[int] = set()
    while True:
        if select.select([own], [], [], 0.002)[0]:
            told, files, _, _ = socket.recv_fds(own, 1_000_000, 2)
            if not told:
                return
            if not (pid := os.fork()):
                own.close()
                _become(json.loads(told), files)
            commands.add(pid)
            for file in files:
                os.close(file)
            own.send(json.dumps({"started": pid}).encode())
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] in commands:  # not what a command has left
                    status = os.waitstatus_to_exitcode(ended[1])
                    own.send(json.dumps({"ended": ended[0], "status": status}).encode())


def _become(told: Mapping[str, Any], files: Sequence[int]) -> NoReturn:
    """Be the command, to its end."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(told["env"])
    os.chdir(told["cwd"])
    for file, place in zip(files, (1, 2), strict=True):
        os.dup2(file, place)
        os.close(file)
    module, *sys.argv[1:] = told["line"]
    code: Any = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    # As an interpreter ends, but for taking itself apart, which takes two seconds for all of them.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Import, then serve on the socket whose number is given."""
    own = socket.socket(fileno=int(sys.argv[1]))
    for module in MODULES:
        __import__(module)
    gc.freeze()
    ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    own.send(b"ready")
    _serve(own)


if __name__ == "__main__":
    main()
