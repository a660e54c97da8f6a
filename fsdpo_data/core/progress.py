"""Progress: what long work tells whoever watches it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any


class Progress:
    """What long work tells its watcher: units done, or a new phase. This one has no watcher."""

    def phase(self, name: str, total: int, done: int = 0) -> None:
        """Begin a phase of ``total`` units, of which ``done`` are there already."""

    def advance(self, units: int, tokens: int = 0) -> None:
        """Report finished units."""


SILENT = Progress()

#: Seconds between two lines of progress where the output is no terminal.
LOG_EVERY = 10.0


class LineProgress(Progress):
    """Progress for logs: one line per phase, and one every ten seconds."""

    def __init__(self) -> None:
        self._name, self._total, self._done, self._tokens, self._there = "", 0, 0, 0, 0
        self._started = self._spoke = time.monotonic()

    def phase(self, name: str, total: int, done: int = 0) -> None:
        """Begin a phase."""
        self._name, self._total, self._tokens = name, total, 0
        self._done = self._there = done
        self._started = self._spoke = time.monotonic()
        there = f", {done} there already" if done else ""
        print(f"{name}: {total} to do{there}", file=sys.stderr, flush=True)

    def advance(self, units: int, tokens: int = 0) -> None:
        """Report finished units."""
        self._done += units
        self._tokens += tokens
        now = time.monotonic()
        if now - self._spoke < LOG_EVERY:
            return
        self._spoke = now
        seconds = now - self._started
        rate = f", {self._tokens / seconds:.0f} tokens/s" if self._tokens else ""
        left = time_left(seconds, self._done - self._there, self._total - self._there)
        told = f"{self._name}: {self._done}/{self._total}{rate}, {left}"
        print(told, file=sys.stderr, flush=True)


def time_left(seconds: float, done: int, total: int) -> str:
    """Return how long the rest takes at the pace so far, however slow a unit is."""
    return f"{timedelta(seconds=round(seconds / done * (total - done)))} left" if done else ""


class BarProgress(Progress):
    """Progress for terminals: a bar per phase, with tokens per second and the time left."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._task: Any = None
        self._tokens, self._started, self._done, self._there = 0, 0.0, 0, 0

    def phase(self, name: str, total: int, done: int = 0) -> None:
        """Begin a phase; the one before is complete."""
        self._finish()
        self._tokens, self._started, self._done, self._there = 0, time.monotonic(), 0, done
        self._task = self._bars.add_task(name, total=total, completed=done, note="")

    def advance(self, units: int, tokens: int = 0) -> None:
        """Report finished units."""
        self._tokens += tokens
        seconds = time.monotonic() - self._started
        self._done += units
        left = time_left(seconds, self._done, self._bars.tasks[self._task].total - self._there)
        rate = f"{self._tokens / seconds:,.0f} tokens/s  " if self._tokens and seconds else ""
        self._bars.update(self._task, advance=units, note=rate + left)

    def _finish(self) -> None:
        if self._task is not None:
            total = self._bars.tasks[self._task].total
            self._bars.update(self._task, completed=total)


@contextmanager
def progress() -> Iterator[Progress]:
    """Show progress on stderr: bars on a terminal, lines elsewhere."""
    if not sys.stderr.isatty():
        yield LineProgress()
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description:>9}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn("{task.fields[note]}"),
        rich.TimeElapsedColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True)) as bars:
        shown = BarProgress(bars)
        yield shown
        shown._finish()
