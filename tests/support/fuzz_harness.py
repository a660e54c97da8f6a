"""Change bytes and values in every kind of input file, and check that commands notice it.

    python tests/support/fuzz_harness.py --mutations 2000 --workers 2
    python tests/support/fuzz_harness.py --mutations 50 --only manifest

The script copies a file, changes the copy, and runs a command that reads it. The files belong to
datasets, manifests, rows, runs, definitions in TOML, checkpoints, tokenizers and templates. The
command may refuse the copy with a message and exit code 1 or 2. It may accept the copy if no digest
protects the file. Everything else is a fault:

- ``traceback``: the command raised an exception;
- ``died`` and ``hung``: the process ended, or used more than 30 seconds;
- ``memory``: the process used more than 2 GB;
- ``escaped``: the command wrote outside of its output directory;
- ``printed``: the command printed an escape sequence of the file;
- ``unnoticed``: the command accepted a change that a digest shows.

The exit code is 1 if there are faults. Commands run in worker processes, which are replaced when
they die or hang. A mutation depends only on the seed and its number, so ``--first NUMBER`` with
``--mutations 1`` repeats one.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import queue
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from fuzz_mutations import mutate
from fuzz_readers import Reader, data_readers, model_readers
from write_guard import WriteGuard

#: Maximal processor seconds of a command.
LIMIT_SECONDS = 30
#: Maximal clock seconds, for a busy machine.
MAX_CLOCK_SECONDS = 10 * LIMIT_SECONDS
MAX_MEMORY_BYTES = 2 * 10**9
FAULTS = ("traceback", "died", "hung", "memory", "escaped", "printed", "unnoticed")
#: One of so many mutations loads a model, which takes longer than all others.
MODEL_INTERVAL = 10
_ESCAPE_SEQUENCE = "\x1b[2J"


class MutationResult(NamedTuple):
    """The result of a mutation."""

    outcome: str  #: ``refused``, ``accepted``, ``unchanged`` or one of ``FAULTS``.
    description: str  #: The file, the command and the end of its output.


def run_mutation(reader: Reader, folder: Path, seed: str) -> MutationResult:
    """Change a copy of a command's input and run the command."""
    rng = random.Random(seed)
    copy = folder / "input" / reader.source.name
    out = folder / "out" / "new"
    for path in (copy.parent, out.parent, folder / "cwd"):
        path.mkdir()
    (shutil.copytree if reader.source.is_dir() else shutil.copyfile)(reader.source, copy)
    file = rng.choice(sorted(copy.glob(reader.glob))) if reader.glob else copy
    data = file.read_bytes()
    changed_data = mutate(data, rng, file.suffix)
    if _is_equivalent(data, changed_data):
        return MutationResult("unchanged", "")
    file.write_bytes(changed_data)
    if reader.reseals:
        reseal(copy, file)
    command = [str(argument) for argument in reader.arguments(copy, out)]
    outcome, output = _run_guarded(reader, folder, command, out)
    return MutationResult(
        outcome, f"{file.relative_to(folder)}: {' '.join(command)}: {output[-2500:]}"
    )


def _run_guarded(
    reader: Reader, folder: Path, command: Sequence[str], out: Path
) -> tuple[str, str]:
    """Run a command; return the outcome and the output."""
    from in_process import run_in_process

    allowed = [out.parent, Path(tempfile.gettempdir())]
    if reader.writes_copy:
        allowed.append(folder / "input")
    os.chdir(folder / "cwd")
    with WriteGuard.watch(allowed) as foreign_paths:
        code, output = run_in_process(command)
    if code is None or "Traceback (most recent call last)" in output:
        return "traceback", output
    if code not in (0, 1, 2):
        return "died", output
    if foreign_paths or any((folder / "cwd").iterdir()):
        return "escaped", f"{foreign_paths} {output}"
    if _ESCAPE_SEQUENCE in output:
        return "printed", output
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > MAX_MEMORY_BYTES:
        return "memory", output
    if code:
        return "refused", output
    if reader.is_sealed or (reader.identity and reader.identity(out) == _identity(reader)):
        return "unnoticed", output
    return "accepted", output


def _is_equivalent(data_a: bytes, data_b: bytes) -> bool:
    """Return whether two contents are equal as bytes or as JSON."""
    with contextlib.suppress(ValueError, RecursionError):
        return bool(json.loads(data_a) == json.loads(data_b))
    return data_a == data_b


def reseal(root: Path, file: Path) -> None:
    """Make the digests of a dataset match a changed file, if its manifest is still JSON."""
    from fsdpo_data.core.identity import digest, file_sha256

    manifest_file = root / "manifest.json"
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        manifest: dict[str, Any] = json.loads(manifest_file.read_bytes())
        for entry in manifest["files"]:
            if root / entry["path"] == file:
                entry["sha256"] = file_sha256(file)
                entry["bytes"] = file.stat().st_size
        files = [(entry["path"], entry["sha256"]) for entry in manifest["files"]]
        manifest["digest"] = digest(manifest["schema_version"], files)
        manifest.pop("manifest_digest", None)
        manifest["manifest_digest"] = digest(manifest)
        manifest_file.write_text(json.dumps(manifest))


@functools.cache
def _identity(reader: Reader) -> str:
    """Return the identity of a reader's unchanged source."""
    from in_process import run_in_process

    assert reader.identity is not None
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "x"
        command = [str(argument) for argument in reader.arguments(reader.source, out)]
        code, output = run_in_process(command)
        assert code == 0, output
        return reader.identity(out)


def _environment(folder: Path) -> dict[str, str]:
    """Return the variables of the commands: no network, one thread, folders of their own."""
    (folder / "tmp").mkdir(exist_ok=True)
    (folder / "mutations").mkdir(exist_ok=True)
    return {
        "TMPDIR": str(folder / "tmp"),
        "HF_HOME": str(folder / "tmp/hf"),
        "HF_HUB_OFFLINE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "tmp/inductor"),  # torch makes it when imported
        "OMP_NUM_THREADS": "1",
        "POLARS_MAX_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }


class Schedule:
    """The readers of the mutations, by their numbers.

    Args:
        folder: Folder of the inputs.
        has_models: Whether to include the readers that load a model.
        kinds: Kinds of files to change; empty for all.
    """

    def __init__(self, folder: Path, *, has_models: bool, kinds: Sequence[str]) -> None:
        models = model_readers(folder) if has_models else []
        self._data = _of_kinds(data_readers(folder), kinds)
        self._models = _of_kinds(models, kinds)

    def reader(self, number: int) -> Reader:
        """Return the reader of a mutation."""
        if not self._models:
            return self._data[number % len(self._data)]
        turn, position = divmod(number, MODEL_INTERVAL)
        if not self._data or position == 0:
            return self._models[(turn if self._data else number) % len(self._models)]
        return self._data[(number - turn - 1) % len(self._data)]


def _of_kinds(readers: Sequence[Reader], kinds: Sequence[str]) -> list[Reader]:
    """Return the readers of some kinds of files; of all kinds if none is given."""
    return [reader for reader in readers if not kinds or reader.kind in kinds]


class MutationWorker:
    """A process that runs mutations, and is replaced when it dies or hangs.

    Args:
        folder: Folder of the inputs.
        schedule: The arguments of :class:`Schedule`.
    """

    def __init__(self, folder: Path, **schedule: Any) -> None:
        self._arguments = (folder, schedule)
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")
        self._pipe, worker_pipe = context.Pipe()
        arguments = (worker_pipe, *self._arguments)
        self._process = context.Process(target=_work, args=arguments, daemon=True)
        self._process.start()
        worker_pipe.close()
        self._pipe.recv()  # the worker has loaded its modules

    def run_mutation(self, number: int, seed: str) -> MutationResult:
        """Run a mutation; return the result."""
        self._pipe.send((number, seed))
        processor_start = self._processor_seconds()
        start = time.monotonic()
        seconds = 0.0
        result = MutationResult("hung", "")
        try:
            while seconds < LIMIT_SECONDS and time.monotonic() - start < MAX_CLOCK_SECONDS:
                if self._pipe.poll(0.5):
                    result = self._pipe.recv()
                    if result.outcome == "memory":
                        break
                    return result
                if self._memory_bytes() > MAX_MEMORY_BYTES:
                    result = MutationResult("memory", f"{self._memory_bytes():,} bytes")
                    break
                seconds = self._processor_seconds() - processor_start
        except EOFError:
            self._process.join()
            result = MutationResult("died", f"exit code {self._process.exitcode}")
        self.stop()
        self._start()
        return result

    def _processor_seconds(self) -> float:
        """Return the processor seconds of the process."""
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def _memory_bytes(self) -> int:
        """Return the resident memory of the process in bytes."""
        with contextlib.suppress(OSError):
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
            return pages * resource.getpagesize()
        return 0

    def stop(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.kill()
        self._process.join()


def _work(pipe: Connection, folder: Path, schedule_arguments: dict[str, Any]) -> None:
    """Run the requested mutations until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Native code prints its panics to the descriptor, beside the message of the command.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    os.environ.update(_environment(folder))
    tempfile.tempdir = os.environ["TMPDIR"]
    import fuzz_inputs  # noqa: F401 -- loads polars after the number of threads is set

    WriteGuard.install()
    schedule = Schedule(folder, **schedule_arguments)
    pipe.send("ready")
    with contextlib.suppress(EOFError):
        while True:
            number, seed = pipe.recv()
            with tempfile.TemporaryDirectory(dir=folder / "mutations") as name:
                try:
                    result = run_mutation(schedule.reader(number), Path(name), seed)
                except Exception:
                    result = MutationResult("died", f"the harness: {traceback.format_exc()}")
                os.chdir(folder)
            pipe.send(result)


def _make_inputs(folder: Path, *, has_models: bool) -> None:
    """Make the inputs in a process of their own."""
    os.environ.update(_environment(folder))
    from fuzz_inputs import make_data_inputs, make_model_inputs

    with contextlib.redirect_stderr(None):
        make_data_inputs(folder)
        if has_models:
            make_model_inputs(folder)


def fuzz(
    folder: Path, numbers: Sequence[int], seed: int, *, workers: int, **schedule: Any
) -> tuple[dict[str, Counter[str]], list[str]]:
    """Run mutations, and print the number of each fault at once.

    Args:
        folder: Folder of the inputs.
        numbers: Numbers of the mutations.
        seed: Seed of the mutations.
        workers: Number of processes.
        schedule: The arguments of :class:`Schedule`.

    Returns:
        The counts of the results, by kind of file, and the descriptions of the faults.
    """
    counts: dict[str, Counter[str]] = {}
    faults: list[str] = []
    readers = Schedule(folder, **schedule)
    remaining_numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in numbers:
        remaining_numbers.put(number)

    def run_remaining() -> None:
        worker = MutationWorker(folder, **schedule)
        with contextlib.suppress(queue.Empty):
            while True:
                number = remaining_numbers.get_nowait()
                outcome, description = worker.run_mutation(number, f"{seed}/{number}")
                reader = readers.reader(number)
                counts.setdefault(reader.kind, Counter())[outcome] += 1
                if outcome in FAULTS:
                    source = f"{reader.kind} {reader.source.name}/{reader.glob}"
                    print(f"--first {number}: {outcome}", file=sys.stderr, flush=True)
                    faults.append(f"--first {number}: {source}: {outcome}: {description}")
        worker.stop()

    threads = [threading.Thread(target=run_remaining) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts, faults


def main() -> None:
    """Make the inputs, fuzz, and print the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutations", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], help="a kind of file; repeatable")
    parser.add_argument("--without-models", action="store_true", help="load no model")
    options = parser.parse_args()
    schedule = {"has_models": not options.without_models, "kinds": options.only}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        maker = get_context("spawn").Process(
            target=_make_inputs, args=(folder,), kwargs={"has_models": schedule["has_models"]}
        )
        maker.start()
        maker.join()
        if maker.exitcode:
            sys.exit("error: the inputs cannot be made")
        numbers = range(options.first, options.first + options.mutations)
        counts, faults = fuzz(folder, numbers, options.seed, workers=options.workers, **schedule)
    for kind, results in sorted(counts.items()):
        line = ", ".join(f"{count} {outcome}" for outcome, count in sorted(results.items()))
        print(f"{kind:<14}{line}")
    for fault in faults:
        print(fault)
    total = sum(counts.values(), Counter())
    fault_counts = ", ".join(f"{total[outcome]} {outcome}" for outcome in FAULTS)
    print(f"{total.total()} mutations: {total['refused']} refused, {fault_counts}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
