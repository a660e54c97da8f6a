"""Notice writes to paths that a command must not touch."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

#: Audit events that change a path, with the positions of the paths in their arguments.
_EVENTS = {
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.mkdir": (0,),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.truncate": (0,),
    "os.chmod": (0,),
    "shutil.move": (0, 1),
    "shutil.rmtree": (0,),
}
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class WriteGuard:
    """An audit hook of this process, which cannot be removed."""

    _allowed: ClassVar[Sequence[str] | None] = None  # folders; None while nothing is watched
    _foreign_paths: ClassVar[list[str]] = []

    @classmethod
    def install(cls) -> None:
        """Install the hook."""
        sys.addaudithook(cls._check_event)

    @classmethod
    @contextlib.contextmanager
    def watch(cls, allowed: Sequence[Path]) -> Iterator[list[str]]:
        """Collect the paths outside of the allowed folders that the block writes."""
        cls._foreign_paths = []
        cls._allowed = [os.path.realpath(path) for path in allowed]
        try:
            yield cls._foreign_paths
        finally:
            cls._allowed = None

    @classmethod
    def _check_event(cls, event: str, arguments: tuple[Any, ...]) -> None:
        if cls._allowed is None:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITE_FLAGS:
                cls._check_path(path)
        # shutil.rmtree reports its folder, and then names relative to an open folder.
        is_relative = event in ("os.remove", "os.rmdir") and arguments[1] not in (-1, None)
        for position in () if is_relative else _EVENTS.get(event, ()):
            cls._check_path(arguments[position])

    @classmethod
    def _check_path(cls, path: Any) -> None:
        if isinstance(path, int) or path is None:
            return
        real_path = os.path.realpath(os.fsdecode(path))
        is_foreign = not any(
            real_path == folder or real_path.startswith(f"{folder}{os.sep}")
            for folder in cls._allowed or ()
        )
        if is_foreign and real_path != os.devnull and "__pycache__" not in real_path:
            cls._foreign_paths.append(real_path)
