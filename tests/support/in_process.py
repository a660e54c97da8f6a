"""Commands that run in this process."""

from __future__ import annotations

import contextlib
import io
import logging
import traceback
from collections.abc import Sequence
from typing import NamedTuple
from unittest.mock import patch


class CommandResult(NamedTuple):
    """The end of a command."""

    code: int | None  #: Exit code; None for an exception.
    output: str  #: Standard output and standard error.


def run_in_process(command: Sequence[str]) -> CommandResult:
    """Run a command, whose first word is its package."""
    module, *arguments = command
    app = __import__(f"{module}.cli.app", fromlist=["main"])
    output = io.StringIO()
    with (
        patch("sys.argv", [module.replace("_", "-"), *arguments]),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        try:
            app.main()
        except SystemExit as error:
            return CommandResult(int(error.code or 0), output.getvalue())
        except BaseException:
            return CommandResult(None, output.getvalue() + traceback.format_exc())
        finally:
            for name in ("fsdpo_data", "fsdpo_train", "fsdpo_bench"):
                logging.getLogger(name).handlers = []
    return CommandResult(0, output.getvalue())
