"""Change bytes and values in every kind of file that is read: is it refused, or read, or fatal?

    python tests/support/fuzz_harness.py --mutations 2000 --seed 0
    python tests/support/fuzz_harness.py --mutations 50 --only manifest

A file of a dataset, a manifest, JSON lines, a run, a checkpoint, a tokenizer or a template is
copied, changed, and given to a command that reads it. A command may refuse it, with a message and
exit code 1 or 2. It may accept it where nothing says what the file should hold; a sealed dataset
says so by its digests, and a model by its identity in what is sealed with it. Everything else is a
fault: tracebacks, processes that die or hang, and what is accepted although a digest should have
said no. It exits with 1 if there are any.

The commands run in one process after another, which is replaced where it dies; a mutation is a
function of the seed and its number, so that ``--first`` and ``--mutations 1`` repeat one.
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

#: Seconds that a command may compute, and how many times that it may take on a busy machine.
LIMIT, PATIENCE = 60, 20
FAULTS = ("traceback", "died", "hung", "unnoticed")
#: What a careless reader may trip over.
_NASTY = (
    None, True, -1, 0, 2**63, 10**22, 1e308, float("nan"), float("inf"), "", "\x00", "../../x",
    "/etc/passwd", "\ud800", "a" * 10_000, [], {}, [[]], {"a": {"b": []}}, [None], ["x"],
    "{% for i in range(10**9) %}x{% endfor %}", "{{ messages.__class__ }}", "{{ nothing.at.all }}",
)  # fmt: skip
_TOKENS = (b"NaN", b"null", b"\xff\xfe", b"\x00", b"[" * 5_000, b'{"', b"-", b"9" * 30, b"\n\n")


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return the bytes of a file, changed: as JSON where they are JSON, or as they come."""
    lines = data.split(b"\n") if data[:1] == b"{" and b"\n{" in data else [data]
    at = rng.randrange(max(1, len(lines) - 1))
    if rng.random() < 0.6:
        with contextlib.suppress(ValueError):
            value = json.loads(lines[at])
            lines[at] = json.dumps(_with_other_value(value, rng)).encode()
            return b"\n".join(lines)
    return _with_other_bytes(data, rng)


def _with_other_value(value: Any, rng: random.Random) -> Any:
    """Return JSON with one value replaced, or one key gone."""
    node, places = value, _places(value)
    *way, last = rng.choice(places) if places else [None]
    if last is None:
        return rng.choice(_NASTY)
    for key in way:
        node = node[key]
    if rng.random() < 0.25:
        del node[last]
    else:
        node[last] = rng.choice(_NASTY)
    return value


def _places(value: Any) -> list[list[Any]]:
    """Return the ways to all values inside a JSON value."""
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value[:50]) if isinstance(value, list) else items
    return [[key, *rest] for key, each in items for rest in ([], *_places(each))]


def _with_other_bytes(data: bytes, rng: random.Random) -> bytes:
    at, size = rng.randrange(len(data) + 1), rng.choice((1, 1, 2, 16, 1000))
    kind = rng.randrange(5)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + rng.choice(_TOKENS) + data[at:]
    if kind == 2:
        return data[:at] + data[at + size :]
    if kind == 3:
        return data[:at] + data[at : at + size] * 2 + data[at + size :]
    return data[:at] + rng.randbytes(size) + data[at + size :]


def attempt(reader: Reader, folder: Path, seed: str) -> tuple[str, str]:
    """Change a copy of what a command reads, run the command, and say what came of it.

    Returns:
        ``refused``, ``accepted``, ``unchanged`` or one of ``FAULTS``, and what was seen.
    """
    rng = random.Random(seed)
    it, out = folder / reader.source.name, folder / "out"
    copy = shutil.copytree if reader.source.is_dir() else shutil.copyfile
    copy(reader.source, it)
    file = rng.choice(sorted(it.glob(reader.glob))) if reader.glob else it
    before = file.read_bytes()
    file.write_bytes(after := mutated(before, rng))
    if _same(before, after):
        return "unchanged", ""
    line = [str(part) for part in reader.line(it, out)]
    code, said = run_here(line)
    told = f"{file.relative_to(folder)}: {' '.join(line)}: {said[-1500:]}"
    if code is None:
        return "traceback", told
    if code:
        return "refused", told
    if reader.sealed or (reader.identity and reader.identity(out) == _identity(reader)):
        return "unnoticed", told
    return "accepted", told


def _same(before: bytes, after: bytes) -> bool:
    """Whether two contents say the same: equal bytes, or equal JSON."""
    with contextlib.suppress(ValueError, RecursionError):
        return bool(json.loads(before) == json.loads(after))
    return before == after


@functools.cache
def _identity(reader: Reader) -> str:
    """Return the identity of what a reader reads when it is as it should be."""
    assert reader.identity is not None
    with tempfile.TemporaryDirectory() as name:
        code, said = run_here([str(part) for part in reader.line(reader.source, Path(name) / "x")])
        assert code == 0, said
        return reader.identity(Path(name) / "x")


def run_here(line: Sequence[str]) -> tuple[int | None, str]:
    """Run a command here; return its exit code, None for a traceback, and what it said."""
    module, *arguments = line
    app = __import__(f"{module}.cli.app", fromlist=["main"])
    said = io.StringIO()
    with (
        patch("sys.argv", [module.replace("_", "-"), *arguments]),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(said),
    ):
        try:
            app.main()
        except SystemExit as ended:
            return int(ended.code or 0), said.getvalue()
        except BaseException:
            return None, said.getvalue() + traceback.format_exc()
    return 0, said.getvalue()


def _work(pipe: Connection, folder: Path) -> None:
    """Attempt what comes in, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    every = readers(folder)
    with contextlib.suppress(EOFError):
        while True:
            number, seed = pipe.recv()
            with tempfile.TemporaryDirectory() as name:
                pipe.send(attempt(every[number], Path(name), seed))


class Worker:
    """A process that attempts mutations; replaced when it dies or hangs.

    Args:
        folder: The inputs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, self._folder), daemon=True)
        self._process.start()
        theirs.close()

    def attempt(self, number: int, seed: str) -> tuple[str, str]:
        """Attempt a mutation for a reader."""
        self._pipe.send((number, seed))
        computed, started = self._computed(), time.monotonic()
        try:
            while self._computed() - computed < LIMIT:
                if self._pipe.poll(1):
                    found: tuple[str, str] = self._pipe.recv()
                    return found
                if time.monotonic() - started > LIMIT * PATIENCE:
                    break
            result = ("hung", f"for {self._computed() - computed:.0f} s of computing")
        except EOFError:
            self._process.join()
            result = ("died", f"exit code {self._process.exitcode}")
        self.stop()
        self._start()
        return result

    def _computed(self) -> float:
        """Return the seconds that the process has computed."""
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
    """Attempt mutations, all readers in turn; tell stderr of faults.

    Args:
        folder: The inputs.
        numbers: Of the mutations.
        seed: Draws them.
        kinds: What to change; empty for all.

    Returns:
        The counts of what came of them, by kind of file.
    """
    every = [
        (number, reader)
        for number, reader in enumerate(readers(folder))
        if not kinds or reader.kind in kinds
    ]
    counts: dict[str, Counter[str]] = {}
    worker = Worker(folder)
    for mutation in numbers:
        number, reader = every[mutation % len(every)]
        result, told = worker.attempt(number, f"{seed}/{mutation}")
        counts.setdefault(reader.kind, Counter())[result] += 1
        if result in FAULTS:
            what = f"{reader.kind} {reader.source.name}/{reader.glob}"
            print(f"--first {mutation}: {what}: {result}: {told}\n", file=sys.stderr, flush=True)
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
        inputs.make_more()
        os.environ.update(inputs.env)
        numbers = range(options.first, options.first + options.mutations)
        counts = fuzz(Path(name), numbers, options.seed, options.only)
        inputs.stop()
    for kind, found in counts.items():
        told = ", ".join(f"{count} {result}" for result, count in sorted(found.items()))
        print(f"{kind:<12}{told}")
    total = sum(counts.values(), Counter())
    faults = ", ".join(f"{total[name]} {name}" for name in FAULTS)
    print(f"{total.total()} mutations: {total['refused']} refused, {faults}")
    sys.exit(any(total[name] for name in FAULTS))


if __name__ == "__main__":
    main()
