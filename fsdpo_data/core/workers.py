"""Worker processes that end together with their parent process, even after SIGKILL."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process

#: Spawn, not fork: the parent may have a model, a GPU and running threads.
SPAWN_CONTEXT = get_context("spawn")


def exit_with_parent() -> None:
    """End this process when its parent ends, even by SIGKILL; every worker calls this once."""
    parent = parent_process()
    if parent is None:
        return

    def wait_for_parent() -> None:
        """Wait for a pipe that the kernel closes when the parent ends."""
        parent.join()
        os._exit(1)

    threading.Thread(target=wait_for_parent, daemon=True).start()


def _initialize_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a worker without a traceback
    exit_with_parent()


@contextlib.contextmanager
def worker_processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Start ``count`` workers for a block.

    The end of the block cancels the queued tasks, and waits for the running ones.
    """
    # Not `with ProcessPoolExecutor(…)`: its end would run the tasks that are still queued.
    pool = ProcessPoolExecutor(count, mp_context=SPAWN_CONTEXT, initializer=_initialize_worker)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
