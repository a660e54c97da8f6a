"""Tests of workers: they end with their parent process, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from fsdpo_data.core.workers import run_child, worker_processes

PARENT = """
import os, sys, time
from concurrent.futures import wait
from fsdpo_data.core.workers import run_child, worker_processes

if __name__ == "__main__":
    with worker_processes(2) as pool:
        slow = [pool.submit(time.sleep, 60) for _ in range(4)]
        pool.submit(os.getpid)
        while len(pool._processes) < 2:
            time.sleep(0.01)
        print(*pool._processes, flush=True)
        wait(slow)
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("started", [0.0, 1.5])
def test_no_worker_is_left(tmp_path: object, ending: signal.Signals, started: float) -> None:
    script = os.path.join(str(tmp_path), "parent.py")
    with open(script, "w") as file:
        file.write(PARENT)
    parent = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    time.sleep(started)
    assert len(workers) == 2 and all(map(psutil.pid_exists, workers))
    if ending is signal.SIGINT:
        for pid in (parent.pid, *workers):  # as a terminal does it
            with contextlib.suppress(ProcessLookupError):  # a worker may end with its parent
                os.kill(pid, ending)
    else:
        parent.send_signal(ending)
    parent.wait(120)
    deadline = time.monotonic() + 60
    while any(map(psutil.pid_exists, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in workers if psutil.pid_exists(pid)]
    parent.stdout.close()


def test_the_end_of_the_block_cancels_queued_tasks() -> None:
    with worker_processes(1) as pool:
        tasks = [pool.submit(time.sleep, 0.2) for _ in range(100)]
        tasks[0].result()
    assert all(task.done() for task in tasks)
    assert sum(task.cancelled() for task in tasks) >= 10


CHILD_OF = """
import sys
from fsdpo_data.core.workers import run_child
sys.exit(run_child([sys.executable, "-c", sys.argv[1]]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends children on Linux only")
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_the_child_of_a_killed_command_ends(ending: signal.Signals) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    command = [sys.executable, "-c", CHILD_OF, code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.send_signal(ending)
    with contextlib.suppress(psutil.NoSuchProcess):
        child.wait(timeout=20)


def test_the_exit_code_of_a_child_is_returned() -> None:
    assert run_child([sys.executable, "-c", "import sys; sys.exit(7)"]) == 7
