"""Command lines, run in this process."""

from __future__ import annotations

import pytest

from fsdpo_data.cli.app import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run ``fsdpo-data`` in this process; return its exit code, stdout and stderr."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["fsdpo-data", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return int(caught.value.code or 0), out, err
