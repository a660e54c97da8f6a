"""The run store: a directory that survives kills, full disks and torn lines.

The unit of durability is one problem with all its samples: one line of ``completions.jsonl``,
matched by content id, never by position. ``config.json`` says what the run is; a directory
started under another config is refused. ``manifest.json`` is written last of all, so its
existence means that the dataset is complete ("sealed").
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from fsdpo_data.core.errors import RunMismatchError, StoreError
from fsdpo_data.core.files import LOCK_FILE, lock_directory, write_atomic
from fsdpo_data.core.identity import digest, to_json_values
from fsdpo_data.core.jsonl_log import JsonlLog, encode_line, read_spans
from fsdpo_data.core.sampling import UNKNOWN, Completion, is_completion

CONFIG_FILE, COMPLETIONS_FILE, MANIFEST_FILE = "config.json", "completions.jsonl", "manifest.json"
QUARANTINE_FILE = "quarantine.jsonl"
_OPTIONAL_FIELDS = (
    "reasoning",
    "thinking_tokens",
)  #: What a completion has on record where there is any.


class RunDir:
    """One run on disk; use :meth:`open` as a context manager."""

    def __init__(self, path: Path, lines: JsonlLog) -> None:
        self.path, self._lines = path, lines
        self.completions_path = lines.path  #: The raw completions, one problem a line.
        self.line_spans = lines.line_spans  #: Where the complete records so far are, by problem id.
        self.incomplete_lines = (
            lines.incomplete_lines
        )  #: Records found broken on opening; their problems are owed again.

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: Path, config: Mapping[str, Any], *, resume: bool) -> Iterator[Self]:
        """Start a run in ``path``, or take up the one there; see :func:`lock_run_directory`.

        A problem has ``config["sampling"]["n"]`` samples.
        """
        n, seed = int(config["sampling"]["n"]), config["sampling"].get("seed")

        def complete(record: dict[str, Any]) -> str | None:
            found = record["completions"]
            # Of recorded problems some may have fewer: n is the most.
            enough = len(found) == n or (seed == UNKNOWN and 0 < len(found) < n)
            whole = enough and all(map(is_completion, found))
            return record["problem_id"] if whole and isinstance(record["prompt"], str) else None

        with (
            lock_run_directory(path, config, resume=resume),
            JsonlLog.open(path / COMPLETIONS_FILE, complete) as lines,
        ):
            yield cls(path, lines)

    def read_records(self, keys: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yield the record of each problem: ``prompt`` and ``completions``."""
        return read_spans(self.completions_path, (self.line_spans[key] for key in keys))

    def append(self, records: Sequence[tuple[str, str, Sequence[Completion]]]) -> None:
        """Write (problem id, prompt, completions) records whole, and wait until they are on disk.

        Lone surrogates, which UTF-8 cannot hold, become U+FFFD.

        Raises:
            StoreError: if the disk is full or gone; the records before stay valid.
        """
        lines = {}
        for key, prompt, completions in records:
            found = [
                {
                    "text": each.text,
                    "finish_reason": each.finish_reason,
                    "n_tokens": each.n_tokens,
                    "seconds": round(each.seconds, 6),
                    **{
                        name: value
                        for name in _OPTIONAL_FIELDS
                        if (value := getattr(each, name)) not in ("", None)
                    },
                }
                for each in completions
            ]
            lines[key] = encode_line({"problem_id": key, "prompt": prompt, "completions": found})
        self._lines.append(lines)


@contextlib.contextmanager
def lock_run_directory(path: Path, config: Mapping[str, Any], *, resume: bool) -> Iterator[None]:
    """Hold ``path`` for the run that ``config`` describes; no other process gets it meanwhile.

    The directory is made if missing; ``resume`` goes on with a run that has started.

    Raises:
        RunMismatchError: if the directory holds a run and ``resume`` is off, or its config differs.
        StoreError: if the directory cannot be written or another process is writing to it.
    """
    with lock_directory(path):
        _check_config(path, config, resume=resume)
        yield


def _check_config(path: Path, config: Mapping[str, Any], *, resume: bool) -> None:
    file = path / CONFIG_FILE
    new = {"config_digest": digest(config), **to_json_values(config)}
    if not file.exists():
        strangers = {entry.name for entry in path.iterdir()} - {LOCK_FILE, f"{CONFIG_FILE}.tmp"}
        if strangers:
            raise RunMismatchError(
                f"{path} holds other files ({', '.join(sorted(strangers)[:3])}) and no run. "
                "Choose a new or empty `out`."
            )
        write_atomic(file, json.dumps(new, indent=2, ensure_ascii=False).encode() + b"\n")
        return
    try:
        old = json.loads(file.read_text())
    except ValueError as error:
        raise StoreError(
            f"{file} is not readable JSON ({error}). Move the directory away, or choose another "
            "`out`."
        ) from error
    changed = differing_keys(old, new)
    if changed:
        raise RunMismatchError(
            f"{path} was started with a different config; these keys differ:\n"
            + "".join(f"  {key}: {before!r} there, {now!r} here\n" for key, before, now in changed)
            + "Repeat the options of the first run to resume it, or choose a new `out`."
        )
    if not resume:
        raise RunMismatchError(
            f"{path} already holds this run. Go on with it by `resume=True`, choose another `out`, "
            "or delete the directory."
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
