"""A file of JSON lines that survives kills, full disks and torn lines.

Lines are appended whole and known by what they hold, never by position. A line that is not whole
is owed again.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, Self

import orjson

from fsdpo_data.core.files import store_errors
from fsdpo_data.core.row_files import replace_surrogates

LineSpan = tuple[int, int]  #: Where a line starts in the file and how many bytes it has.


class JsonlLog:
    """An append-only file of JSON lines; use :meth:`open` as a context manager."""

    def __init__(self, path: Path, file: FileIO) -> None:
        self.path = path
        self.line_spans: dict[str, LineSpan] = {}  #: Complete lines so far, by key.
        self.incomplete_lines = 0  #: Lines found broken on opening.
        self._file = file

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: Path, key: Callable[[dict[str, Any]], str | None]) -> Iterator[Self]:
        """Open a file for appending; made if missing, a torn end cut off.

        ``key`` names a line: None, or a missing or unfit field, for one that is owed again.

        Raises:
            StoreError: if the file cannot be written.
        """
        with store_errors(path.parent):
            # Unbuffered: what a full disk refused must not be tried again when it is closed.
            file = path.open("ab", buffering=0)
        with file:
            lines = cls(path, file)
            with store_errors(path.parent):
                end = 0
                for name, length in scan_lines(path, key):
                    if name is None:
                        lines.incomplete_lines += 1
                    else:
                        lines.line_spans.setdefault(name, (end, length))
                    end += length
                file.truncate(end)  # appending starts on a fresh line
                file.seek(end)
            yield lines

    def append(self, lines: Mapping[str, bytes]) -> None:
        """Write encoded lines by key, and wait until they are on disk.

        Raises:
            StoreError: if the disk is full or gone; the lines before stay valid.
        """
        start = self._file.tell()
        with store_errors(self.path.parent, saved_problems=len(self.line_spans)):
            try:
                unwritten = memoryview(b"".join(lines.values()))
                while unwritten:  # a disk that fills up takes a part first
                    unwritten = unwritten[self._file.write(unwritten) :]
                os.fsync(self._file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    self._file.truncate(start)
                raise
        for key, line in lines.items():
            self.line_spans[key] = (start, len(line))
            start += len(line)


def encode_line(record: Mapping[str, Any]) -> bytes:
    """Return a record as one line; lone surrogates, which UTF-8 cannot hold, become U+FFFD."""
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # orjson refuses lone surrogates
        whole = replace_surrogates(json.dumps(record, ensure_ascii=False))
        return orjson.dumps(orjson.loads(whole), option=orjson.OPT_APPEND_NEWLINE)


def read_spans(path: Path, spans: Iterable[LineSpan]) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file that are at ``spans``, in that order."""
    with path.open("rb") as file:
        for start, length in spans:
            file.seek(start)
            yield orjson.loads(file.read(length))


def scan_lines(
    path: Path, key: Callable[[dict[str, Any]], str | None]
) -> Iterator[tuple[str | None, int]]:
    """Yield (key, bytes) of every line; the key is None for a broken one.

    An end without a line break comes with a length of 0.
    """
    with path.open("rb") as file:
        for line in file:
            whole = line.endswith(b"\n")
            name = None
            with contextlib.suppress(ValueError, KeyError, TypeError):
                name = key(orjson.loads(line)) if whole else None
            yield name if isinstance(name, str) else None, len(line) if whole else 0
