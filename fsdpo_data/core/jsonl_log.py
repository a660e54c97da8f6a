"""An append-only file of JSON lines that survives kills, full disks and incomplete lines.

The content of a line gives its key; positions do not matter. The log ignores incomplete lines, so
their records are still missing and are written again.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson

from fsdpo_data.core.files import store_errors
from fsdpo_data.core.input_files import check_regular_file, parse_json
from fsdpo_data.core.row_files import replace_surrogates


class LineSpan(NamedTuple):
    """The position of a line in its file."""

    start: int  #: Offset of the first byte.
    length: int  #: Length in bytes, including the line break.


class JsonlLog:
    """An append-only file of JSON lines; use :meth:`open` as a context manager.

    Attributes:
        path: Path of the file.
        line_spans: Positions of the complete lines, by key; of repeated keys, the first line in
            the file.
        incomplete_lines: Number of incomplete or unknown lines when the file was opened.
    """

    def __init__(self, path: Path, file: FileIO) -> None:
        self.path = path
        self.line_spans: dict[str, LineSpan] = {}
        self.incomplete_lines = 0
        self._file = file

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: Path, key: Callable[[dict[str, Any]], str | None]) -> Iterator[Self]:
        """Open a file for appending; create it if missing, and remove an incomplete last line.

        Args:
            path: Path of the file.
            key: Returns the key of a record. None, a KeyError or a TypeError marks an unknown
                record, which the log ignores.

        Raises:
            StoreError: if the file is not writable.
        """
        with store_errors(path.parent):
            if path.exists():
                check_regular_file(path)
            # Unbuffered: after a failed write, closing the file must not write the data again.
            file = path.open("ab", buffering=0)
        log = cls(path, file)
        try:
            with store_errors(path.parent):
                end = 0
                for line_key, span in scan_lines(path, key):
                    if line_key is None:
                        log.incomplete_lines += 1
                    else:
                        log.line_spans.setdefault(line_key, span)
                    end = span.start + span.length
                file.truncate(end)  # the next append starts on a new line
                file.seek(end)
            yield log
        finally:
            log._file.close()

    def append(self, lines: Mapping[str, bytes]) -> None:
        """Append encoded lines, and wait until they are on disk.

        Args:
            lines: The lines by key, from :func:`encode_line`.

        Raises:
            StoreError: if the disk is full or missing; earlier lines stay valid.
        """
        start = self._file.tell()
        with store_errors(self.path.parent, saved_problems=len(self.line_spans)):
            try:
                unwritten = memoryview(b"".join(lines.values()))
                while unwritten:  # a nearly full disk accepts only a part of the data
                    unwritten = unwritten[self._file.write(unwritten) :]
                os.fsync(self._file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    self._file.truncate(start)
                raise
        for key, line in lines.items():
            self.line_spans[key] = LineSpan(start, len(line))
            start += len(line)


def encode_line(record: Mapping[str, Any]) -> bytes:
    """Encode a record as one line; lone surrogates, which are invalid in UTF-8, become U+FFFD."""
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # orjson refuses lone surrogates
        text = replace_surrogates(json.dumps(record, ensure_ascii=False))
        return orjson.dumps(orjson.loads(text), option=orjson.OPT_APPEND_NEWLINE)


def read_spans(path: Path, line_spans: Iterable[LineSpan]) -> Iterator[dict[str, Any]]:
    """Yield the records of a file at ``line_spans``, in that order."""
    return map(orjson.loads, read_lines(path, line_spans))


def read_lines(path: Path, line_spans: Iterable[LineSpan]) -> Iterator[bytes]:
    """Yield the lines of a file at ``line_spans``, in that order."""
    with path.open("rb") as file:
        for start, length in line_spans:
            file.seek(start)
            yield file.read(length)


def scan_lines(
    path: Path, key: Callable[[dict[str, Any]], str | None]
) -> Iterator[tuple[str | None, LineSpan]]:
    """Yield the key and the position of every line.

    The key of an incomplete or unknown line is None. A last line without a line break has length 0.
    """
    check_regular_file(path)
    start = 0
    with path.open("rb") as file:
        for line in file:
            is_complete = line.endswith(b"\n")
            line_key = None
            with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError):
                line_key = key(parse_json(line, orjson.loads)) if is_complete else None
            length = len(line) if is_complete else 0
            yield line_key if isinstance(line_key, str) else None, LineSpan(start, length)
            start += length
