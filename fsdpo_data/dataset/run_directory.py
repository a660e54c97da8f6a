"""The run directory: it survives kills, full disks and incomplete lines.

The unit of durability is one problem with all its samples. It is one line of
``completions.jsonl``, and its content id identifies it, never its position. ``config.json``
describes the run, and a run with another config is refused. ``manifest.json`` is written last,
so a directory with a manifest is complete ("sealed").
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from fsdpo_data.core.completion_records import (
    CompletionRecord,
    dump_record,
    load_record,
    read_records,
)
from fsdpo_data.core.errors import InputError, RunMismatchError, StoreError
from fsdpo_data.core.files import LOCK_FILE, lock_directory, write_file
from fsdpo_data.core.identity import digest, to_json_values
from fsdpo_data.core.input_files import read_json
from fsdpo_data.core.jsonl_log import JsonlLog, encode_line
from fsdpo_data.core.plugins import loaded_plugins

CONFIG_FILE = "config.json"
COMPLETIONS_FILE = "completions.jsonl"
MANIFEST_FILE = "manifest.json"
QUARANTINE_FILE = "quarantine.jsonl"
RUN_FILE = "run.json"  #: List of the datasets in the folder of a benchmark run.
SHARD_FILE = "shard.json"  #: Description of a finished shard, inside its directory.
HEAD_CHUNK_KEY = "head_chunk_tokens"  #: Key of the tokens per chunk of the head, of a training.
#: Keys of a config that describe the run, not its content. They are recorded, but not compared.
RUN_KEYS = ("config_digest", "prm_format_evidence", HEAD_CHUNK_KEY)


class KeyChange(NamedTuple):
    """A key with different values in two configs."""

    key: str  #: Path of the key, joined by dots.
    old: Any  #: Value in the first config; None if the key is missing.
    new: Any  #: Value in the second config; None if the key is missing.


class RunDir:
    """A run on disk; use :meth:`open` as a context manager.

    Attributes:
        path: The run directory.
        completions_path: The file of raw completions, with one problem per line.
        line_spans: Offset and length of each complete line, by problem id.
        incomplete_lines: Incomplete lines found on opening; their problems are sampled again.
    """

    def __init__(self, path: Path, lines: JsonlLog) -> None:
        self.path = path
        self.completions_path = lines.path
        self.line_spans = lines.line_spans
        self.incomplete_lines = lines.incomplete_lines
        self._lines = lines

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        path: Path,
        config: Mapping[str, Any],
        *,
        n_samples: int,
        allows_fewer: bool = False,
        resume: bool,
    ) -> Iterator[Self]:
        """Start a run in ``path``, or resume the existing run.

        :func:`lock_run_directory` states the errors.

        Args:
            path: The directory.
            config: Everything that determines the content of the run.
            n_samples: Number of samples of each problem.
            allows_fewer: Whether a problem may have fewer samples, as in recorded responses.
            resume: Whether the directory may contain the run.
        """

        def complete_record_id(values: dict[str, Any]) -> str | None:
            """Return the problem id of a complete record; None for other records."""
            record = load_record(values)
            n_completions = len(record.completions)
            is_complete = n_completions == n_samples or (
                allows_fewer and 0 < n_completions < n_samples
            )
            return record.problem_id if is_complete else None

        with (
            lock_run_directory(path, config, resume=resume),
            JsonlLog.open(path / COMPLETIONS_FILE, complete_record_id) as lines,
        ):
            yield cls(path, lines)

    def read_records(self, problem_ids: Iterable[str]) -> Iterator[CompletionRecord]:
        """Yield the record of each problem."""
        spans = (self.line_spans[problem_id] for problem_id in problem_ids)
        return read_records(self.completions_path, spans)

    def append(self, records: Sequence[CompletionRecord]) -> None:
        """Write records, and wait until they are on disk.

        UTF-8 cannot encode lone surrogates, so U+FFFD replaces them.

        Raises:
            StoreError: if the disk is full or missing; earlier records stay valid.
        """
        self._lines.append(
            {record.problem_id: encode_line(dump_record(record)) for record in records}
        )


@contextlib.contextmanager
def lock_run_directory(
    path: Path,
    config: Mapping[str, Any],
    *,
    resume: bool,
    run_values: Mapping[str, Any] | None = None,
    config_file: str = CONFIG_FILE,
) -> Iterator[None]:
    """Lock the directory of the run that ``config`` describes, and check its config.

    A missing directory is created. With ``resume``, a run that has started continues.

    Args:
        path: The directory.
        config: Everything that determines the content of the run. Loaded plug-ins are added.
        resume: Whether the directory may contain the run.
        run_values: Values of :data:`RUN_KEYS`, such as the command lines that create the run. Empty
            values are left out.
        config_file: Name of the file with the config.

    Raises:
        RunMismatchError: if the directory contains a run and ``resume`` is off, or if its config
            is different.
        StoreError: if the directory is not writable, or another process writes to it.
    """
    with lock_directory(path, start_files=[config_file]):
        plugins = loaded_plugins()
        if plugins:
            config = {**config, "plugins": plugins}
        _check_config(path / config_file, config, resume=resume, run_values=run_values or {})
        yield


def _check_config(
    file: Path, config: Mapping[str, Any], *, resume: bool, run_values: Mapping[str, Any]
) -> None:
    """Write the config of a new run, or compare it with the config of an existing run."""
    path = file.parent
    new_config = {"config_digest": digest(config), **to_json_values(config)}
    if not file.exists():
        _check_empty(file)
        write_config(file, new_config | {key: value for key, value in run_values.items() if value})
        return
    old_config = read_config(file)
    changes = differing_keys(old_config, new_config)
    if changes:
        lines = [f"  {key}: {old!r} in the run, {new!r} now\n" for key, old, new in changes]
        raise RunMismatchError(
            f"{path} was started with a different config; these keys differ:\n"
            + "".join(lines)
            + "Repeat the options of the first run to resume it, or choose a new `out`."
        )
    if not resume:
        raise RunMismatchError(
            f"{path} already holds this run. Continue it with `resume=True`, choose another `out`, "
            "or delete the directory."
        )


def write_config(file: Path, config: Mapping[str, Any]) -> None:
    """Write the config of a run."""
    text = json.dumps(config, indent=2, ensure_ascii=False)
    write_file(file, text.encode(errors="backslashreplace") + b"\n")


def read_config(file: Path) -> dict[str, Any]:
    """Return the config of a run; StoreError if the file does not contain one."""
    reason = "its value is not an object"
    try:
        config = read_json(file)
        if isinstance(config, dict):
            return config
    except InputError as error:
        reason = str(error)
    raise StoreError(
        f"{file} is not the config of a run: {reason} Move the directory away, or choose another "
        "`out`."
    )


def _check_empty(config_file: Path) -> None:
    """Refuse a directory that contains other files than the lock and an unfinished config."""
    folder = config_file.parent
    own_files = {LOCK_FILE, f"{config_file.name}.tmp"}
    other_files = {entry.name for entry in folder.iterdir()} - own_files
    if other_files:
        raise RunMismatchError(
            f"the directory holds other files ({', '.join(sorted(other_files)[:3])}) and no run. "
            "Choose a new or empty one.",
            field="out",
            value=str(folder),
        )


def differing_keys(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> list[KeyChange]:
    """Return the keys whose values differ between two configs, except the run's own keys."""
    changes: list[KeyChange] = []
    for key in sorted(old.keys() | new.keys()):
        old_value = old.get(key)
        new_value = new.get(key)
        if isinstance(old_value, dict) and isinstance(new_value, dict):
            changes += differing_keys(old_value, new_value, f"{prefix}{key}.")
        elif old_value != new_value and key not in RUN_KEYS:
            changes.append(KeyChange(prefix + key, old_value, new_value))
    return changes
