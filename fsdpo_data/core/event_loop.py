"""Run coroutines in an event loop that has a thread of its own.

Ctrl-C raises KeyboardInterrupt in the main thread only. So it cannot hit a coroutine between its
creation and its start, or inside the event loop. All coroutines end before the interrupt goes on.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TypeVar

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class _End:
    """The end of the results."""

    error: BaseException | None  #: The exception that ended them; None after the last result.


def iterate(make_results: Callable[[], AsyncIterator[ResultT]]) -> Iterator[ResultT]:
    """Yield the results of an asynchronous iterator as they arrive.

    If the caller stops early, the coroutines are cancelled.
    """
    queue: SimpleQueue[ResultT | _End] = SimpleQueue()

    async def forward_results() -> None:
        async for result in make_results():
            queue.put(result)

    thread = _EventLoopThread(forward_results, lambda error: queue.put(_End(error)))
    try:
        thread.start()
        while not isinstance(result := queue.get(), _End):
            yield result
    finally:
        thread.stop()
    if result.error is not None:
        raise result.error


def call(function: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Return the result of an asynchronous function."""

    async def make_results() -> AsyncIterator[ResultT]:
        yield await function()

    [result] = iterate(make_results)
    return result


class _EventLoopThread(threading.Thread):
    """A thread that runs one coroutine function in a new event loop."""

    def __init__(
        self,
        main: Callable[[], Awaitable[None]],
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        super().__init__(daemon=True)
        self._main = main
        self._on_end = on_end
        self._loop = asyncio.new_event_loop()

    def run(self) -> None:
        """Run the coroutine, then close the loop with all of its tasks."""
        error: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._await_main())
        except BaseException as caught:
            error = caught
        self._on_end(error)

    async def _await_main(self) -> None:
        await self._main()

    def stop(self) -> None:
        """Cancel all tasks, and wait for the end of the thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._cancel_tasks)
        if self.ident is not None:
            self.join()

    def _cancel_tasks(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
