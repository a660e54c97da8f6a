"""Coroutines run in a thread of their own, where Ctrl-C cannot hit them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from fsdpo_data.core import event_loop
from fsdpo_data.engines.options import ConnectionOptions
from fsdpo_data.engines.server_client import connect_scorer


def test_no_request_runs_in_the_main_thread() -> None:
    """An interrupt there once left coroutines that were never awaited, with a warning for each."""
    threads = set()

    async def send(client: object, index: int) -> int:
        threads.add(threading.current_thread())
        return index

    server = connect_scorer(ConnectionOptions(base_url="http://127.0.0.1:9/v1"))
    results = dict(server.send_all(send, 20))
    assert sorted(results) == list(range(20))
    assert len(threads) == 1 and threading.main_thread() not in threads


def test_an_interrupt_cancels_all_coroutines(recwarn: pytest.WarningsRecorder) -> None:
    cancelled = []

    async def wait(index: int) -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.append(index)
            raise

    async def results() -> AsyncIterator[int]:
        tasks = [asyncio.create_task(wait(index)) for index in range(5)]
        await asyncio.sleep(0)
        yield 1
        await asyncio.gather(*tasks)

    with pytest.raises(KeyboardInterrupt):
        for _ in event_loop.iterate(results):
            raise KeyboardInterrupt
    assert sorted(cancelled) == [0, 1, 2, 3, 4]
    assert not [thread for thread in threading.enumerate() if "EventLoop" in type(thread).__name__]
    assert not recwarn.list


def test_results_and_errors_arrive_in_order() -> None:
    async def results() -> AsyncIterator[int]:
        yield 1
        yield 2
        raise ValueError("no more")

    iterator = event_loop.iterate(results)
    assert [next(iterator), next(iterator)] == [1, 2]
    with pytest.raises(ValueError, match="no more"):
        next(iterator)

    async def answer() -> int:
        return 42

    assert event_loop.call(answer) == 42
