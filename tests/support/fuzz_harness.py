"""Change bytes and values in every kind of input file, and check that commands notice it.

    python tests/support/fuzz_harness.py --mutations 2000 --seed 0
    python tests/support/fuzz_harness.py --mutations 50 --only manifest

The script copies a file, changes the copy, and runs a command that reads it. The files belong to
datasets, manifests, JSON lines, runs, checkpoints, tokenizers and templates. The command may refuse
the copy with a message and exit code 1 or 2. It may accept the copy if no digest protects the file.
Sealed datasets have digests, and datasets record the identity of their models. Everything else is a
fault:

- ``traceback``: the command raised an exception;
- ``died`` and ``hung``: the process ended, or used too much time;
- ``unnoticed``: the command accepted a change that a digest shows.

The exit code is 1 if there are faults. All commands run in one worker process, which is replaced
when it dies. A mutation depends only on the seed and its number, so ``--first NUMBER`` with
``--mutations 1`` repeats one.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
from fuzz_readers import Reader, readers
from writing_commands import Inputs

#: Maximal processor seconds of a command.
LIMIT_SECONDS = 60
#: Maximal clock seconds, for a busy machine.
MAX_CLOCK_SECONDS = 20 * LIMIT_SECONDS
FAULTS = ("traceback", "died", "hung", "unnoticed")
#: Values that break careless readers.
_HOSTILE_VALUES = (
    None, True, -1, 0, 2**63, 10**22, 1e308, float("nan"), float("inf"), "", "\x00", "../../x",
    "/etc/passwd", "\ud800", "a" * 10_000, [], {}, [[]], {"a": {"b": []}}, [None], ["x"],
    "{% for i in range(10**9) %}x{% endfor %}", "{{ messages.__class__ }}", "{{ nothing.at.all }}",
)  # fmt: skip
_HOSTILE_BYTES = (
    b"NaN",
    b"null",
    b"\xff\xfe",
    b"\x00",
    b"[" * 5_000,
    b'{"',
    b"-",
    b"9" * 30,
    b"\n\n",
)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return changed file contents; JSON is changed either as a value or as bytes."""
    lines = data.split(b"\n") if data[:1] == b"{" and b"\n{" in data else [data]
    index = rng.randrange(max(1, len(lines) - 1))
    if rng.random() < 0.6:
        with contextlib.suppress(ValueError):
            value = json.loads(lines[index])
            lines[index] = json.dumps(_change_value(value, rng)).encode()
            return b"\n".join(lines)
    return _change_bytes(data, rng)


def _change_value(value: Any, rng: random.Random) -> Any:
    """Return JSON with one value replaced or one key removed."""
    node = value
    paths = _list_paths(value)
    *parents, last = rng.choice(paths) if paths else [None]
    if last is None:
        return rng.choice(_HOSTILE_VALUES)
    for key in parents:
        node = node[key]
    if rng.random() < 0.25:
        del node[last]
    else:
        node[last] = rng.choice(_HOSTILE_VALUES)
    return value


def _list_paths(value: Any) -> list[list[Any]]:
    """Return the paths (lists of keys and indices) of all values in a JSON value."""
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value[:50]) if isinstance(value, list) else items
    return [[key, *path] for key, child in items for path in ([], *_list_paths(child))]


def _change_bytes(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    size = rng.choice((1, 1, 2, 16, 1000))
    end = start + size
    kind = rng.randrange(5)
    if kind == 0:
        return data[:start]
    if kind == 1:
        return data[:start] + rng.choice(_HOSTILE_BYTES) + data[start:]
    if kind == 2:
        return data[:start] + data[end:]
    if kind == 3:
        return data[:start] + data[start:end] * 2 + data[end:]
    return data[:start] + rng.randbytes(size) + data[end:]


def run_mutation(reader: Reader, folder: Path, seed: str) -> tuple[str, str]:
    """Change a copy of a command's input and run the command.

    Returns:
        ``refused``, ``accepted``, ``unchanged`` or one of ``FAULTS``, and a description.
    """
    rng = random.Random(seed)
    copy = folder / reader.source.name
    out = folder / "out"
    if reader.source.is_dir():
        shutil.copytree(reader.source, copy)
    else:
        shutil.copyfile(reader.source, copy)
    file = rng.choice(sorted(copy.glob(reader.glob))) if reader.glob else copy
    data = file.read_bytes()
    changed_data = mutate(data, rng)
    file.write_bytes(changed_data)
    if _is_equivalent(data, changed_data):
        return "unchanged", ""
    command = [str(argument) for argument in reader.arguments(copy, out)]
    code, stderr = run_in_process(command)
    description = f"{file.relative_to(folder)}: {' '.join(command)}: {stderr[-1500:]}"
    if code is None:
        return "traceback", description
    if code:
        return "refused", description
    if reader.sealed or (reader.identity and reader.identity(out) == _identity(reader)):
        return "unnoticed", description
    return "accepted", description


def _is_equivalent(data_a: bytes, data_b: bytes) -> bool:
    """Return whether two contents are equal as bytes or as JSON."""
    with contextlib.suppress(ValueError, RecursionError):
        return bool(json.loads(data_a) == json.loads(data_b))
    return data_a == data_b


@functools.cache
def _identity(reader: Reader) -> str:
    """Return the identity of a reader's unchanged source."""
    assert reader.identity is not None
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "x"
        command = [str(argument) for argument in reader.arguments(reader.source, out)]
        code, stderr = run_in_process(command)
        assert code == 0, stderr
        return reader.identity(out)


def run_in_process(command: Sequence[str]) -> tuple[int | None, str]:
    """Run a command here; return its exit code (None for a traceback) and its stderr."""
    module, *arguments = command
    app = __import__(f"{module}.cli.app", fromlist=["main"])
    stderr = io.StringIO()
    with (
        patch("sys.argv", [module.replace("_", "-"), *arguments]),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(stderr),
    ):
        try:
            app.main()
        except SystemExit as error:
            return int(error.code or 0), stderr.getvalue()
        except BaseException:
            return None, stderr.getvalue() + traceback.format_exc()
    return 0, stderr.getvalue()


def _work(pipe: Connection, folder: Path) -> None:
    """Run the requested mutations until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    all_readers = readers(folder)
    with contextlib.suppress(EOFError):
        while True:
            index, seed = pipe.recv()
            with tempfile.TemporaryDirectory() as name:
                pipe.send(run_mutation(all_readers[index], Path(name), seed))


class MutationWorker:
    """A process that runs mutations, and is replaced when it dies or hangs.

    Args:
        folder: Folder of the inputs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")
        self._pipe, worker_pipe = context.Pipe()
        self._process = context.Process(target=_work, args=(worker_pipe, self._folder), daemon=True)
        self._process.start()
        worker_pipe.close()

    def run_mutation(self, reader_index: int, seed: str) -> tuple[str, str]:
        """Run a mutation for a reader; return the result and its description."""
        self._pipe.send((reader_index, seed))
        processor_start = self._processor_seconds()
        started = time.monotonic()
        try:
            while self._processor_seconds() - processor_start < LIMIT_SECONDS:
                if self._pipe.poll(1):
                    response: tuple[str, str] = self._pipe.recv()
                    return response
                if time.monotonic() - started > MAX_CLOCK_SECONDS:
                    break
            seconds = self._processor_seconds() - processor_start
            result = ("hung", f"for {seconds:.0f} s of computing")
        except EOFError:
            self._process.join()
            result = ("died", f"exit code {self._process.exitcode}")
        self.stop()
        self._start()
        return result

    def _processor_seconds(self) -> float:
        """Return the processor seconds of the process."""
        with contextlib.suppress(psutil.Error):
            return sum(psutil.Process(self._process.pid).cpu_times()[:2])
        return 0.0

    def stop(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(5)
        self._process.kill()
        self._process.join()


def fuzz(folder: Path, numbers: range, seed: int, kinds: Sequence[str]) -> dict[str, Counter[str]]:
    """Run mutations for all readers in turn, and print faults to stderr.

    Args:
        folder: Folder of the inputs.
        numbers: Numbers of the mutations.
        seed: Seed of the mutations.
        kinds: Kinds of files to change; empty for all.

    Returns:
        The counts of the results, by kind of file.
    """
    selected = [
        (index, reader)
        for index, reader in enumerate(readers(folder))
        if not kinds or reader.kind in kinds
    ]
    counts: dict[str, Counter[str]] = {}
    worker = MutationWorker(folder)
    for mutation in numbers:
        index, reader = selected[mutation % len(selected)]
        result, description = worker.run_mutation(index, f"{seed}/{mutation}")
        counts.setdefault(reader.kind, Counter())[result] += 1
        if result in FAULTS:
            source = f"{reader.kind} {reader.source.name}/{reader.glob}"
            message = f"--first {mutation}: {source}: {result}: {description}\n"
            print(message, file=sys.stderr, flush=True)
    worker.stop()
    return counts


def main() -> None:
    """Make the inputs, fuzz, and print the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutations", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", default=[], help="a kind of file; repeatable")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        inputs = Inputs(Path(name), problems=48)
        inputs.make()
        inputs.make_fuzz_inputs()
        os.environ.update(inputs.env)
        numbers = range(options.first, options.first + options.mutations)
        counts = fuzz(Path(name), numbers, options.seed, options.only)
        inputs.stop()
    for kind, results in counts.items():
        line = ", ".join(f"{count} {result}" for result, count in sorted(results.items()))
        print(f"{kind:<12}{line}")
    total = sum(counts.values(), Counter())
    faults = ", ".join(f"{total[name]} {name}" for name in FAULTS)
    print(f"{total.total()} mutations: {total['refused']} refused, {faults}")
    sys.exit(any(total[name] for name in FAULTS))


if __name__ == "__main__":
    main()
