"""Progress: what long work tells whoever watches it."""

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


NO_PROGRESS = Progress()

LOG_INTERVAL_SECONDS = (
    10.0  #: Seconds between two lines of progress where the output is no terminal.
)


class _TimedProgress(Progress):
    """Progress that knows its pace."""

    _name, _total, _done = "start", 0, 0

    def phase(self, name: str, total: int, done: int = 0) -> None:
        self._name, self._total, self._tokens = name, total, 0
        self._done = self._there = done
        self._started = time.monotonic()

    def advance(self, units: int, tokens: int = 0) -> None:
        self._done += units
        self._tokens += tokens

    def _pace(self) -> tuple[float, str]:
        """Return tokens per second, and the time left."""
        seconds = time.monotonic() - self._started
        left = time_left(seconds, self._done - self._there, self._total - self._there)
        return self._tokens / seconds if seconds else 0.0, left


class LineProgress(_TimedProgress):
    """Progress for logs: one line per phase, and one every ten seconds."""

    def phase(self, name: str, total: int, done: int = 0) -> None:
        """Begin a phase."""
        super().phase(name, total, done)
        self._spoke = self._started
        there = f", {done} there already" if done else ""
        print(f"{name}: {total} to do{there}", file=sys.stderr, flush=True)

    def advance(self, units: int, tokens: int = 0) -> None:
        """Report finished units."""
        super().advance(units, tokens)
        if time.monotonic() - self._spoke < LOG_INTERVAL_SECONDS:
            return
        self._spoke = time.monotonic()
        rate, left = self._pace()
        speed = f", {rate:.0f} tokens/s" if self._tokens else ""
        told = f"{self._name}: {self._done}/{self._total}{speed}, {left}"
        print(told, file=sys.stderr, flush=True)


def time_left(seconds: float, done: int, total: int) -> str:
    """Return how long the rest takes at the pace so far, however slow a unit is."""
    return f"{timedelta(seconds=round(seconds / done * (total - done)))} left" if done else ""


class BarProgress(_TimedProgress):
    """Progress for terminals: a bar per phase, with tokens per second and the time left."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._task: Any = None

    def phase(self, name: str, total: int, done: int = 0) -> None:
        """Begin a phase; the one before is complete."""
        self.finish()
        super().phase(name, total, done)
        self._task = self._bars.add_task(name, total=total, completed=done, note="")

    def advance(self, units: int, tokens: int = 0) -> None:
        """Report finished units."""
        super().advance(units, tokens)
        rate, left = self._pace()
        note = f"{rate:,.0f} tokens/s  {left}" if rate else left
        self._bars.update(self._task, advance=units, note=note)

    def finish(self) -> None:
        """End the last phase."""
        if self._task is not None:
            self._bars.update(self._task, completed=self._total)


@contextmanager
def progress() -> Iterator[Progress]:
    """Show progress on stderr: bars on a terminal, lines elsewhere; the count, too, if stopped."""
    with _open_bar() as shown:
        try:
            yield shown
        except KeyboardInterrupt:
            print(f"\n{shown._name}: {shown._done} of {shown._total} are done", file=sys.stderr)
            raise


@contextmanager
def _open_bar() -> Iterator[_TimedProgress]:
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
        shown.finish()
