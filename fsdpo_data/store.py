"""The run store: a directory that survives kills, full disks and torn lines.

The unit of durability is one problem with all its samples: one line of ``completions.jsonl``,
matched by content id, never by position. ``config.json`` says what the run is; a directory
started under another config is refused. ``manifest.json`` is written last of all, so its
existence means that the dataset is complete ("sealed").
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from io import FileIO
from pathlib import Path
from typing import IO, Any

import orjson

from fsdpo_data.errors import RunMismatch, StoreError
from fsdpo_data.identity import canonical_json, digest
from fsdpo_data.samplers import Completion

CONFIG, COMPLETIONS, MANIFEST = "config.json", "completions.jsonl", "manifest.json"

#: Where a record starts in ``completions.jsonl`` and how many bytes it has.
Span = tuple[int, int]


class RunDir:
    """One run on disk; use :meth:`open` as a context manager.

    Attributes:
        path: The directory.
        spans: Complete records so far, by problem id.
        torn: Records found broken on opening; their problems are owed again.
    """

    def __init__(self, path: Path, n: int) -> None:
        self.path = path
        self.spans: dict[str, Span] = {}
        self.torn = 0
        self._n = n
        self._file: FileIO | None = None

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: Path, config: Mapping[str, Any], *, resume: bool) -> Iterator[RunDir]:
        """Start a run in ``path``, or take up the one there.

        Args:
            path: Directory; made if missing.
            config: The frozen spec as plain JSON; ``config["sampling"]["n"]`` samples a problem.
            resume: Whether to go on with a run that has already started.

        Raises:
            RunMismatch: if the directory holds a run and ``resume`` is off, or its config differs.
            StoreError: if the directory cannot be written or another process is writing to it.
        """
        run = cls(path, int(config["sampling"]["n"]))
        with claim(path, config, resume=resume):
            with explained(path, saved=0):
                run._open_completions()
            try:
                yield run
            finally:
                if run._file:
                    run._file.close()

    @property
    def completions(self) -> Path:
        """The raw completions, one problem a line."""
        return self.path / COMPLETIONS

    @property
    def sealed(self) -> bool:
        """Whether the dataset is complete."""
        return (self.path / MANIFEST).exists()

    def append(self, records: Sequence[tuple[str, str, Sequence[Completion]]]) -> None:
        """Write (problem id, prompt, completions) records whole, and wait until they are on disk.

        Lone surrogates, which UTF-8 cannot hold, become U+FFFD.

        Raises:
            StoreError: if the disk is full or gone; the records before stay valid.
        """
        assert self._file is not None
        start = self._file.tell()
        spans: dict[str, Span] = {}
        buffer = bytearray()
        for problem_id, prompt, completions in records:
            line = _encode(problem_id, prompt, completions)
            spans[problem_id] = (start + len(buffer), len(line))
            buffer += line
        with explained(self.path, saved=len(self.spans)):
            try:
                unwritten = memoryview(buffer)
                while unwritten:  # a disk that fills up takes a part first
                    unwritten = unwritten[self._file.write(unwritten) :]
                os.fsync(self._file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    self._file.truncate(start)
                raise
        self.spans.update(spans)

    def _open_completions(self) -> None:
        """Index the records and cut a torn tail off, so that appending starts on a fresh line."""
        # Unbuffered: what a full disk refused must not be tried again when the file is closed.
        self._file = self.completions.open("ab", buffering=0)
        end = 0
        with self.completions.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    self.torn += 1
                    break
                problem_id = self._complete(line)
                if problem_id is None:
                    self.torn += 1
                else:
                    self.spans.setdefault(problem_id, (end, len(line)))
                end += len(line)
        self._file.truncate(end)
        self._file.seek(end)

    def _complete(self, line: bytes) -> str | None:
        """Return the problem id of a whole record, or None for one that is owed again."""
        try:
            record = orjson.loads(line)
            return record["problem_id"] if len(record["completions"]) == self._n else None
        except (ValueError, KeyError, TypeError):
            return None


def _encode(problem_id: str, prompt: str, completions: Sequence[Completion]) -> bytes:
    record = {
        "problem_id": problem_id,
        "prompt": prompt,
        "completions": [
            {**asdict(completion), "seconds": round(completion.seconds, 6)}
            for completion in completions
        ],
    }
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # orjson refuses lone surrogates
        whole = [replace(each, text=_without_surrogates(each.text)) for each in completions]
        return _encode(problem_id, _without_surrogates(prompt), whole)


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@contextlib.contextmanager
def claim(path: Path, config: Mapping[str, Any], *, resume: bool) -> Iterator[None]:
    """Hold ``path`` for the run that ``config`` describes; no other process gets it meanwhile.

    Args:
        path: Directory; made if missing.
        config: The frozen spec as plain JSON.
        resume: Whether to go on with a run that has already started.

    Raises:
        RunMismatch: if the directory holds a run and ``resume`` is off, or its config differs.
        StoreError: if the directory cannot be written or another process is writing to it.
    """
    with explained(path, saved=0):
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / ".lock").open("ab")
    with lock:
        _take(lock, path)
        _check_config(path, config, resume=resume)
        yield


def _take(lock: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreError(
            f"{path}: another process is writing to this run. Wait for it to end, or choose "
            "another --out."
        ) from None


def _check_config(path: Path, config: Mapping[str, Any], *, resume: bool) -> None:
    file = path / CONFIG
    new = {"config_digest": digest(config), **json.loads(canonical_json(config))}
    if not file.exists():
        strangers = {entry.name for entry in path.iterdir()} - {".lock", f"{CONFIG}.tmp"}
        if strangers:
            raise RunMismatch(
                f"{path} holds other files ({', '.join(sorted(strangers)[:3])}) and no run. "
                "Choose a new or empty --out."
            )
        write_atomic(file, json.dumps(new, indent=2, ensure_ascii=False).encode() + b"\n")
        return
    try:
        old = json.loads(file.read_text())
    except ValueError as error:
        raise StoreError(
            f"{file} is not readable JSON ({error}). Move the directory away, or choose another "
            "--out."
        ) from error
    changed = differing_keys(old, new)
    if changed:
        raise RunMismatch(
            f"{path} was started with a different config; these keys differ:\n"
            + "".join(f"  {key}: {before!r} there, {now!r} here\n" for key, before, now in changed)
            + "Repeat the options of the first run to resume it, or choose a new --out."
        )
    if not resume:
        raise RunMismatch(
            f"{path} already holds this run. Go on with it by --resume, choose another --out, or "
            "delete the directory."
        )


def differing_keys(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> list[tuple[str, Any, Any]]:
    """List (dotted key, old value, new value) wherever two configs differ, digests aside."""
    changed: list[tuple[str, Any, Any]] = []
    for key in sorted(old.keys() | new.keys()):
        before, now = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(now, dict):
            changed += differing_keys(before, now, f"{prefix}{key}.")
        elif before != now and key != "config_digest":
            changed.append((prefix + key, before, now))
    return changed


@contextlib.contextmanager
def explained(path: Path, *, saved: int) -> Iterator[None]:
    """Turn an operating-system error under ``path`` into a message with a way out."""
    reasons = {
        errno.ENOSPC: "the disk is full; free some space",
        errno.EDQUOT: "the disk quota is used up; free some space",
        errno.EROFS: "the file system is read-only; choose another --out",
        errno.EACCES: "permission denied; choose another --out",
        errno.EPERM: "permission denied; choose another --out",
        errno.ENOTDIR: "a file is in the way; choose another --out",
        errno.EEXIST: "a file is in the way; choose another --out",
    }
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        kept = f" {saved} problems are safe there; then run again with --resume." if saved else "."
        raise StoreError(f"Cannot write to {error.filename or path}: {reason}{kept}") from error


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file under a temporary name, sync it, then rename: whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    publish(temporary, path)


def publish(temporary: Path, path: Path) -> None:
    """Rename a finished, synced file into place and sync the directory."""
    temporary.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
