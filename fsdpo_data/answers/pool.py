"""Grade on all cores, in processes that may hang, be killed or run out of memory.

Grading is bounded by construction; this is for the day when that is not enough. A thread cannot
be killed, so each worker is a process that the parent replaces. Only the pair that did the harm
is lost: its verdict is ``timed_out``.
"""

import contextlib
import os
import resource
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Self

from fsdpo_data.answers import Grader, GraderInput, Verdict
from fsdpo_data.core.errors import UnavailableError
from fsdpo_data.core.workers import SPAWN_CONTEXT, exit_with_parent

CHUNK_PAIRS = 200  #: Pairs sent to a worker at once.
#: Fewer pairs than this are graded in this process: starting workers takes longer.
MIN_PAIRS_FOR_POOL = 10_000
MAX_WORKER_BYTES = 4 << 30  #: Memory a worker may have, in bytes.
START_TIMEOUT_SECONDS = 120  #: Time a worker may take to start.

#: The verdict for a pair that killed its worker or held it up.
TIMED_OUT_VERDICT = Verdict("timed_out", None, "worker-lost")


@dataclass(slots=True)
class _Worker:
    """A worker process, and what it is at: positions of its pairs, and when it is given up."""

    process: BaseProcess
    pipe: Connection
    ready: bool = False
    span: range = range(0)
    deadline: float = 0.0


class GraderPool:
    """A grader that spreads its pairs over worker processes; use it as a context manager.

    Args:
        make: Makes the grader, here and in every worker; must be importable there.
        workers: Processes; the cores at hand if None.
        seconds: Wall-clock time a worker may take for one answer before it is replaced.
    """

    def __init__(
        self,
        make_grader: Callable[[], Grader],
        workers: int | None = None,
        timeout_seconds: float = 20.0,
    ) -> None:
        self.version = make_grader().version
        self.replaced_workers = 0
        self._make = make_grader
        self._seconds = timeout_seconds
        self._count = workers or len(os.sched_getaffinity(0))
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        self._workers = [self._start() for _ in range(self._count)]
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            _stop(worker)
        self._workers = []

    def grade(self, items: Sequence[GraderInput]) -> list[Verdict]:
        """Grade (gold, response) pairs, in order."""
        spans = (
            range(at, min(at + CHUNK_PAIRS, len(items))) for at in range(0, len(items), CHUNK_PAIRS)
        )
        owed = deque(spans)
        verdicts: list[Verdict] = [TIMED_OUT_VERDICT] * len(items)
        while owed or any(worker.span for worker in self._workers):
            for worker in self._workers:
                if owed and not worker.span:
                    self._send(worker, owed.popleft(), items)
            for index in self._ready():
                self._receive(index, owed, verdicts)
        return verdicts

    def _send(self, worker: _Worker, span: range, items: Sequence[GraderInput]) -> None:
        _await_start(worker)
        worker.span = span
        worker.deadline = time.monotonic() + self._seconds
        try:
            worker.pipe.send(items[span.start : span.stop])
        except OSError:
            worker.deadline = 0.0  # it is dead, and is replaced when its answer is asked for

    def _ready(self) -> list[int]:
        """Wait until workers have answered, died or used up their time; return which."""
        busy = [worker for worker in self._workers if worker.span]
        nearest = min(worker.deadline for worker in busy)
        answered = wait([each.pipe for each in busy], max(nearest - time.monotonic(), 0.0))
        now = time.monotonic()
        return [
            index
            for index, worker in enumerate(self._workers)
            if worker.span and (worker.pipe in answered or now >= worker.deadline)
        ]

    def _receive(self, index: int, owed: deque[range], verdicts: list[Verdict]) -> None:
        """Take a worker's answer; replace it and owe its pairs one by one if there is none."""
        worker = self._workers[index]
        span = worker.span
        try:
            if not worker.pipe.poll():
                raise EOFError
            verdicts[span.start : span.stop] = worker.pipe.recv()
            worker.span = range(0)
        except (EOFError, OSError):
            _stop(worker)
            self._workers[index] = self._start()
            self.replaced_workers += 1
            if len(span) > 1:
                owed.extendleft(range(at, at + 1) for at in reversed(span))

    def _start(self) -> _Worker:
        ours, theirs = SPAWN_CONTEXT.Pipe()
        process = SPAWN_CONTEXT.Process(target=_work, args=(theirs, self._make), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)


def _await_start(worker: _Worker) -> None:
    """Wait for a worker's first sign of life, so that starting up is not charged to a pair."""
    try:
        if not worker.ready and not worker.pipe.poll(START_TIMEOUT_SECONDS):
            raise EOFError
        worker.ready = worker.ready or worker.pipe.recv()
    except (EOFError, OSError):
        raise UnavailableError(
            f"a grading process did not start within {START_TIMEOUT_SECONDS} seconds, most likely for want "
            "of memory. Run again with `workers=1`."
        ) from None


def _stop(worker: _Worker) -> None:
    worker.pipe.close()
    worker.process.kill()
    worker.process.join()


def _work(pipe: Connection, make: Callable[[], Grader]) -> None:
    """Grade what comes in, until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to act on
    exit_with_parent()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = MAX_WORKER_BYTES if hard == resource.RLIM_INFINITY else min(MAX_WORKER_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    grader = make()
    pipe.send(True)
    with contextlib.suppress(EOFError, MemoryError):
        while True:
            pipe.send(grader.grade(pipe.recv()))


@contextlib.contextmanager
def open_grader(
    make_grader: Callable[[], Grader], n_pairs: int, workers: int | None = None
) -> Iterator[Grader]:
    """Give a grader for so many pairs: in this process if they are few, else in several.

    ``make`` must be importable in other processes; without ``workers``, each core gets one.
    """
    workers = workers or len(os.sched_getaffinity(0))
    if workers == 1 or n_pairs < MIN_PAIRS_FOR_POOL:
        yield make_grader()
        return
    with GraderPool(make_grader, workers) as pool:
        yield pool
