"""Worker processes that end together with their parent process, even after SIGKILL."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process

from fsdpo_data.core.plugins import load_environment_plugins

#: Spawn, not fork: the parent may have a model, a GPU and running threads.
SPAWN_CONTEXT = get_context("spawn")
_PR_SET_PDEATHSIG = 1  #: Option of prctl(2): the signal that a process gets when its parent ends.


def exit_with_parent() -> None:
    """End this process when its parent ends, even by SIGKILL; every worker calls this once."""
    parent = parent_process()
    if parent is None:
        return

    def wait_for_parent() -> None:
        """Wait for a pipe that the kernel closes when the parent ends."""
        parent.join()
        os._exit(1)

    threading.Thread(target=wait_for_parent, daemon=True).start()


def _initialize_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a worker without a traceback
    exit_with_parent()
    load_environment_plugins()


@contextlib.contextmanager
def worker_processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Start ``count`` workers for a block.

    The end of the block cancels the queued tasks, and waits for the running ones.
    """
    # Not `with ProcessPoolExecutor(…)`: its end would run the tasks that are still queued.
    pool = ProcessPoolExecutor(count, mp_context=SPAWN_CONTEXT, initializer=_initialize_worker)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def start_child(
    command: Sequence[str], env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a command; on Linux, it ends with this process.

    Args:
        command: The command line.
        env: The environment; None for the environment of this process.
    """
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def end_with_parent() -> None:
        """Ask the kernel to end the new process when its parent ends."""
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return subprocess.Popen(command, env=env, preexec_fn=end_with_parent)


def run_child(command: Sequence[str]) -> int:
    """Run a command to its end and return its exit code; see :func:`start_child`."""
    with start_child(command) as process:
        try:
            return process.wait()
        except BaseException:  # such as Ctrl-C, which the command gets, too
            process.kill()
            raise
