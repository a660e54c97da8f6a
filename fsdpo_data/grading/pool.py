"""Grade on all CPU cores, in processes that may hang, be killed or run out of memory.

The operation budget of the grader already bounds every comparison. The pool protects a build if
that bound fails. A thread cannot be killed, so each worker is a process that the parent replaces.
Only the response that caused the failure is lost: its verdict is ``timed_out``.
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

from fsdpo_data.answers import Grader, GradingRequest, Verdict
from fsdpo_data.core.errors import UnavailableError
from fsdpo_data.core.workers import SPAWN_CONTEXT, exit_with_parent

CHUNK_REQUESTS = 200  #: Requests that a worker receives at once.
#: Fewer responses are graded in this process, because starting workers takes longer.
MIN_REQUESTS_FOR_POOL = 10_000
MAX_WORKER_BYTES = 4 << 30  #: Memory limit of a worker.
START_TIMEOUT_SECONDS = 120  #: Time limit for the start of a worker.

#: The verdict on a response whose worker died or exceeded the time limit.
TIMED_OUT_VERDICT = Verdict("timed_out", None, "worker-lost")


@dataclass(slots=True)
class _Worker:
    """A worker process with the chunk that it grades."""

    process: BaseProcess  #: The process.
    pipe: Connection  #: The connection to the process.
    is_ready: bool = False  #: Whether the process has reported that it started.
    span: range = range(0)  #: Positions of the requests in its chunk. Empty for an idle worker.
    deadline: float = 0.0  #: The monotonic time at which the worker is replaced, in seconds.


class GraderPool:
    """A grader that distributes its requests over worker processes; use it as a context manager.

    Args:
        make_grader: A function that returns the grader, in this process and in every worker. The
            workers must be able to import the function.
        workers: The number of processes. None starts one per CPU core.
        timeout_seconds: Time limit for one chunk, after which the worker is replaced.

    Attributes:
        version: The full name of the grader.
        replaced_workers: The number of workers that died or exceeded the time limit.
    """

    def __init__(
        self,
        make_grader: Callable[[], Grader],
        workers: int | None = None,
        timeout_seconds: float = 20.0,
    ) -> None:
        self.version = make_grader().version
        self.replaced_workers = 0
        self._make_grader = make_grader
        self._timeout_seconds = timeout_seconds
        self._n_workers = workers or len(os.sched_getaffinity(0))
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        self._workers = [self._start_worker() for _ in range(self._n_workers)]
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            _stop_worker(worker)
        self._workers = []

    def grade(self, requests: Sequence[GradingRequest]) -> list[Verdict]:
        """Grade responses and return their verdicts in the same order."""
        pending = deque(
            range(start, min(start + CHUNK_REQUESTS, len(requests)))
            for start in range(0, len(requests), CHUNK_REQUESTS)
        )
        verdicts: list[Verdict] = [TIMED_OUT_VERDICT] * len(requests)
        while pending or any(worker.span for worker in self._workers):
            for worker in self._workers:
                if pending and not worker.span:
                    self._send(worker, pending.popleft(), requests)
            for index in self._wait_for_workers():
                self._receive(index, pending, verdicts)
        return verdicts

    def _send(self, worker: _Worker, span: range, requests: Sequence[GradingRequest]) -> None:
        _await_start(worker)
        worker.span = span
        worker.deadline = time.monotonic() + self._timeout_seconds
        try:
            worker.pipe.send(requests[span.start : span.stop])
        except OSError:
            worker.deadline = 0.0  # the process is dead; _receive replaces it

    def _wait_for_workers(self) -> list[int]:
        """Wait until a worker answers, dies or exceeds its time limit.

        Returns:
            The indices of these workers.
        """
        busy = [worker for worker in self._workers if worker.span]
        first_deadline = min(worker.deadline for worker in busy)
        timeout = max(first_deadline - time.monotonic(), 0.0)
        ready_pipes = wait([worker.pipe for worker in busy], timeout)
        time_now = time.monotonic()
        return [
            index
            for index, worker in enumerate(self._workers)
            if worker.span and (worker.pipe in ready_pipes or time_now >= worker.deadline)
        ]

    def _receive(self, index: int, pending: deque[range], verdicts: list[Verdict]) -> None:
        """Store the verdicts of a worker, or replace a worker that returned none.

        The responses of a replaced worker are graded again one by one. A response that fails alone
        keeps the verdict ``timed_out``.
        """
        worker = self._workers[index]
        span = worker.span
        try:
            if not worker.pipe.poll():
                raise EOFError
            verdicts[span.start : span.stop] = worker.pipe.recv()
            worker.span = range(0)
        except (EOFError, OSError):
            _stop_worker(worker)
            self._workers[index] = self._start_worker()
            self.replaced_workers += 1
            if len(span) > 1:
                pending.extendleft(range(start, start + 1) for start in reversed(span))

    def _start_worker(self) -> _Worker:
        parent_pipe, worker_pipe = SPAWN_CONTEXT.Pipe()
        process = SPAWN_CONTEXT.Process(
            target=_run_worker, args=(worker_pipe, self._make_grader), daemon=True
        )
        process.start()
        worker_pipe.close()
        return _Worker(process, parent_pipe)


def _await_start(worker: _Worker) -> None:
    """Wait until a worker has started, so that its time limit excludes the start."""
    try:
        if not worker.is_ready and not worker.pipe.poll(START_TIMEOUT_SECONDS):
            raise EOFError
        worker.is_ready = worker.is_ready or worker.pipe.recv()
    except (EOFError, OSError):
        raise UnavailableError(
            f"a grading process did not start within {START_TIMEOUT_SECONDS} seconds, probably "
            "because memory is short. Run again with `workers=1`."
        ) from None


def _stop_worker(worker: _Worker) -> None:
    worker.pipe.close()
    worker.process.kill()
    worker.process.join()


def _run_worker(pipe: Connection, make_grader: Callable[[], Grader]) -> None:
    """Grade chunks from the pipe until the parent closes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent handles Ctrl-C
    exit_with_parent()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = MAX_WORKER_BYTES if hard == resource.RLIM_INFINITY else min(MAX_WORKER_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    grader = make_grader()
    pipe.send(True)
    with contextlib.suppress(EOFError, MemoryError):
        while True:
            pipe.send(grader.grade(pipe.recv()))


@contextlib.contextmanager
def open_grader(
    make_grader: Callable[[], Grader], n_requests: int, workers: int | None = None
) -> Iterator[Grader]:
    """Open a grader for a number of requests: in this process if they are few, else a pool.

    Args:
        make_grader: A function that returns the grader. Worker processes must be able to import it.
        n_requests: The number of responses to grade.
        workers: The number of processes. None starts one per CPU core.
    """
    workers = workers or len(os.sched_getaffinity(0))
    if workers == 1 or n_requests < MIN_REQUESTS_FOR_POOL:
        yield make_grader()
        return
    with GraderPool(make_grader, workers) as pool:
        yield pool
