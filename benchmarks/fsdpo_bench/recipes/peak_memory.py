"""The largest memory of a process and its child processes."""

import subprocess
import time
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

GPU_POLL_SECONDS = 2.0  #: Time between two looks at the memory of the GPU, which start a program.


class PeakMemory:
    """The largest memory of a process and its child processes so far, in bytes."""

    def __init__(self, pid: int, *, has_gpu: bool) -> None:
        """Take the process, and whether its memory on GPUs counts."""
        self._pid = pid
        self._has_gpu = has_gpu
        self._next_gpu_look = 0.0
        self.peak_bytes = 0
        self.peak_gpu_bytes = 0

    def update(self) -> None:
        """Look at the memory of the processes that are running."""
        processes = process_tree(self._pid)
        self.peak_bytes = max(self.peak_bytes, sum(map(_resident_bytes, processes)))
        if self._has_gpu and time.monotonic() >= self._next_gpu_look:
            self._next_gpu_look = time.monotonic() + GPU_POLL_SECONDS
            by_process = gpu_bytes_by_process()
            gpu_bytes = sum(by_process.get(process.pid, 0) for process in processes)
            self.peak_gpu_bytes = max(self.peak_gpu_bytes, gpu_bytes)


def process_tree(pid: int) -> list[Any]:
    """Return a process and its child processes; nothing if it has ended, or without psutil."""
    if find_spec("psutil") is None:  # the extra `train` installs it
        return []
    import psutil

    try:
        program = psutil.Process(pid)
        return [program, *program.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _resident_bytes(process: Any) -> int:
    """Return the memory of a process; 0 if it has ended."""
    import psutil

    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def gpu_bytes_by_process() -> dict[int, int]:
    """Return the GPU memory of each process in bytes; nothing without `nvidia-smi`."""
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    with suppress(OSError, subprocess.SubprocessError):
        rows = subprocess.run(query, check=True, capture_output=True, text=True).stdout
        cells = [row.split(",") for row in rows.splitlines()]
        return {int(pid): int(megabytes) * 2**20 for pid, megabytes in cells}
    return {}
