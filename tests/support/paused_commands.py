"""Start a command of ``fsdpo-bench`` that pauses itself, and kill it with SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: Runs the command line and pauses after a number of records in a file, so that a kill always
#: interrupts it.
PAUSING_PROGRAM = """
import sys, time
from pathlib import Path
from fsdpo_data.core.jsonl_log import JsonlLog
append = JsonlLog.append
file = Path(sys.argv.pop(1))
pause_at = int(sys.argv.pop(1))
def append_and_pause(self, lines):
    append(self, lines)
    if self.path == file and len(self.line_spans) >= pause_at:
        time.sleep(600)
JsonlLog.append = append_and_pause
from fsdpo_bench.cli.app import main
main()
"""


def kill_when_written(line: Sequence[str], file: Path, min_records: int, pause_at: int) -> None:
    """Kill a command after ``min_records`` records; it pauses itself after ``pause_at``."""
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-c", PAUSING_PROGRAM, str(file), str(pause_at), *line]
    child = subprocess.Popen(command, start_new_session=True, **quiet)
    while child.poll() is None and not (
        file.exists() and file.read_bytes().count(b"\n") >= min_records
    ):
        time.sleep(0.005)
    os.killpg(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
