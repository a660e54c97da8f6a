"""Worker processes, which end with the process that started them, however it ends."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process

#: Spawned, not forked: the parent may hold a model, a GPU and running threads.
SPAWN_CONTEXT = get_context("spawn")


def exit_with_parent() -> None:
    """End this process as soon as its parent has, even by SIGKILL; called once by every worker."""
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()  # a pipe that the kernel closes with the parent
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _start() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a word
    exit_with_parent()


@contextlib.contextmanager
def worker_processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Give so many workers; what they have not begun when the block is left is dropped."""
    with ProcessPoolExecutor(count, mp_context=SPAWN_CONTEXT, initializer=_start) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
