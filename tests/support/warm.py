"""An interpreter with all imports done, which forks a process for each command.

Imports take most of the time of short commands. A forked process can be killed and waited for like
any other process.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from killing import COUNT_FILE, count_changes

#: Modules that the commands import, except for modules that start threads.
MODULES = (
    "accelerate", "orjson", "pyarrow.parquet", "pydantic", "scipy.special",
    "torch", "transformers", "transformers.trainer", "fsdpo_bench.cli.app", "fsdpo_data.api",
    "fsdpo_data.cli.app", "fsdpo_data.engines.scorers.prm", "fsdpo_train.cli.app",
    "fsdpo_train.preference.train", "fsdpo_train.prm.train", "fsdpo_train.sft.train",
)  # fmt: skip
#: The modules of commands that need no models.
DATA_MODULES = ("orjson", "pyarrow.parquet", "pydantic", "fsdpo_data.api", "fsdpo_data.cli.app")


class ForkedCommand:
    """A forked command, with a part of the interface of ``subprocess.Popen``."""

    def __init__(self, interpreter: WarmInterpreter, pid: int) -> None:
        self._interpreter = interpreter
        self.pid = pid

    @property
    def returncode(self) -> int:
        """Return the exit status; negative for a signal."""
        return self._interpreter.exit_codes[self.pid]

    def poll(self) -> int | None:
        """Return the exit status, or None while the command runs."""
        self._interpreter.receive_exits(0)
        return self._interpreter.exit_codes.get(self.pid)

    def wait(self) -> int:
        """Wait for the end of the command and return its exit status."""
        while self.poll() is None:
            self._interpreter.receive_exits(1)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the command has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class WarmInterpreter:
    """Starts commands of ``python -m module`` and ``python -c code`` by forking.

    Args:
        env: The environment during the imports.
        modules: The modules that are imported.
    """

    def __init__(self, env: Mapping[str, str], modules: Sequence[str] = MODULES) -> None:
        #: Exit status of each ended command, by process id.
        self.exit_codes: dict[int, int] = {}
        self._socket, server_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, __file__, str(server_socket.fileno()), *modules]
        self._process = subprocess.Popen(command, env=env, pass_fds=[server_socket.fileno()])
        server_socket.close()
        assert self._socket.recv(100) == b"ready"

    def start(
        self, command: Sequence[str], env: Mapping[str, str], out: int, err: int
    ) -> ForkedCommand:
        """Start a command; ``out`` and ``err`` are its file descriptors."""
        return self._fork(command[1:], env, Path.cwd(), (out, err))

    def run(self, *arguments: object, folder: Path, env: Mapping[str, str]) -> str:
        """Run ``python`` with some arguments in a folder; return its standard output.

        Raises:
            AssertionError: if the command fails.
        """
        process = self.complete(*arguments, folder=folder, env=env)
        assert process.returncode == 0, f"{arguments}\n{process.stdout}\n{process.stderr}"
        return process.stdout

    def complete(
        self, *arguments: object, folder: Path, env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run ``python`` with some arguments in a folder; return its exit code and output."""
        words = [*map(str, arguments)]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            code = self._fork(words, env, folder, (out.fileno(), err.fileno())).wait()
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(
                words, code, out.read().decode(), err.read().decode()
            )

    def _fork(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        folder: Path,
        descriptors: tuple[int, int],
    ) -> ForkedCommand:
        request = {"arguments": arguments, "env": dict(env), "cwd": str(folder)}
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
        while True:
            message = json.loads(self._socket.recv(1000))
            if "started" in message:
                return ForkedCommand(self, message["started"])
            self.exit_codes[message["ended"]] = message["status"]

    def receive_exits(self, seconds: float) -> None:
        """Record which commands have ended; wait at most ``seconds`` for the first message."""
        while select.select([self._socket], [], [], seconds)[0]:
            message = json.loads(self._socket.recv(1000))
            self.exit_codes[message["ended"]] = message["status"]
            seconds = 0

    def stop(self) -> None:
        """End the interpreter."""
        self._socket.close()
        self._process.wait()


def _serve(server_socket: socket.socket) -> None:
    """Fork the requested commands and report their ends, until the socket is closed."""
    n_running = 0
    while True:
        if select.select([server_socket], [], [], 0.005 if n_running else None)[0]:
            request, files, _, _ = socket.recv_fds(server_socket, 1_000_000, 2)
            if not request:
                return
            if not (pid := os.fork()):
                server_socket.close()
                _run_command(json.loads(request), files)
            for file in files:
                os.close(file)
            server_socket.send(json.dumps({"started": pid}).encode())
            n_running += 1
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                n_running -= 1
                code = os.waitstatus_to_exitcode(status)
                server_socket.send(json.dumps({"ended": pid, "status": code}).encode())


def _run_command(request: Mapping[str, Any], files: Sequence[int]) -> NoReturn:
    """Run the command in this forked process, and end the process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    for file, stream in zip(files, (1, 2), strict=True):  # stdout and stderr
        os.dup2(file, stream)
        os.close(file)
    option, program, *sys.argv[1:] = request["arguments"]
    counter = count_changes()
    code: Any = 0
    try:
        if option == "-c":
            exec(program, {"__name__": "__main__"})
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        code = error.code or 0
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    # The steps of an interpreter's end, without the module teardown, which takes two seconds.
    threading._shutdown()
    atexit._run_exitfuncs()
    if counter:
        Path(os.environ[COUNT_FILE]).write_text(str(counter.changes))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Import the given modules, then serve on the socket with the given file descriptor."""
    server_socket = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        __import__(module)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server_socket.send(b"ready")
    _serve(server_socket)


if __name__ == "__main__":
    main()
