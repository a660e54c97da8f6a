"""Command lines, run in this process."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fsdpo_data.cli.app import main


def run(
    capsys: pytest.CaptureFixture[str], *arguments: str, main: Callable[[], None] = main
) -> tuple[int, str, str]:
    """Run ``fsdpo-data``, or another, in this process; return its exit code, stdout and stderr."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", [main.__module__.partition(".")[0], *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return int(caught.value.code or 0), out, err


def press_ctrl_c(line: Sequence[str], log: Path, wait: float = 0) -> str:
    """Press Ctrl-C ``wait`` seconds after a command has written to ``log``; return its stderr."""
    child = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    while not (log.exists() and log.stat().st_size):
        assert child.poll() is None, child.stderr.read()
        time.sleep(0.05)
    time.sleep(wait)
    child.send_signal(signal.SIGINT)
    stderr = child.communicate()[1]
    assert child.returncode == 130 and "Traceback" not in stderr
    return stderr
