"""Progress reports of long work: bars on terminals, lines in logs."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any


class Progress:
    """Progress report that shows nothing; subclasses show phases and finished units."""

    def phase(self, name: str, total: int, done: int = 0) -> None:
        """Start a phase.

        Args:
            name: Name of the phase.
            total: Number of units in the phase.
            done: Number of units that an earlier run has finished.
        """

    def advance(self, units: int, tokens: int = 0) -> None:
        """Report newly finished units, and the tokens generated for them."""

    def discard(self, units: int) -> None:
        """Report that finished units of an interrupted batch are lost."""
        self.advance(-units)


NO_PROGRESS = Progress()

LOG_INTERVAL_SECONDS = 10.0  #: Time between two progress lines if the output is not a terminal.


class _TimedProgress(Progress):
    """Progress that measures units and tokens over time."""

    _name = "start"
    _total = 0
    _done = 0
    _discarded = 0

    def phase(self, name: str, total: int, done: int = 0) -> None:
        """Start a phase and its clock."""
        self._name = name
        self._total = total
        self._tokens = 0
        self._done = done
        self._initially_done = done
        self._discarded = 0
        self._start_time = time.monotonic()

    def advance(self, units: int, tokens: int = 0) -> None:
        """Count finished units and their tokens."""
        self._done += units
        self._tokens += tokens

    def discard(self, units: int) -> None:
        """Take units back, and remember their number for the summary."""
        super().discard(units)
        self._discarded += units

    def _speed(self) -> tuple[float, str]:
        """Return tokens per second, and the time left as text."""
        seconds = time.monotonic() - self._start_time
        remaining_time = time_left(
            seconds, self._done - self._initially_done, self._total - self._initially_done
        )
        tokens_per_second = self._tokens / seconds if seconds else 0.0
        return tokens_per_second, remaining_time

    def summary(self) -> str:
        """Return the state of the current phase as one sentence."""
        text = f"{self._name}: {self._done} of {self._total} are done"
        if self._discarded:
            text += f"; {self._discarded} more of an unfinished batch are not saved"
        return text


class LineProgress(_TimedProgress):
    """Progress for logs: one line per phase, and one every ten seconds."""

    def phase(self, name: str, total: int, done: int = 0) -> None:
        """Start a phase, and print its size."""
        super().phase(name, total, done)
        self._last_print_time = self._start_time
        size_note = f": {total - done} to do" if total > 1 else ""
        done_note = f", {done} already done" if done else ""
        self._write(f"{name}{size_note}{done_note}")

    def advance(self, units: int, tokens: int = 0) -> None:
        """Report newly finished units."""
        super().advance(units, tokens)
        if time.monotonic() - self._last_print_time < LOG_INTERVAL_SECONDS:
            return
        self._last_print_time = time.monotonic()
        tokens_per_second, remaining_time = self._speed()
        speed = f", {tokens_per_second:.0f} tokens/s" if self._tokens else ""
        self._write(f"{self._name}: {self._done}/{self._total}{speed}, {remaining_time}")

    def _write(self, line: str) -> None:
        """Print a line."""
        print(line, file=sys.stderr, flush=True)


class LogProgress(LineProgress):
    """Progress of library functions, which print nothing: the lines go to a logger.

    Args:
        logger: The logger.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def _write(self, line: str) -> None:
        """Log a line."""
        self._logger.info(line)


def time_left(seconds: float, done: int, total: int) -> str:
    """Estimate the remaining time from the speed so far; empty before the first finished unit."""
    if not done:
        return ""
    return f"{timedelta(seconds=round(seconds / done * (total - done)))} left"


class BarProgress(_TimedProgress):
    """Progress for terminals: a bar per phase, with tokens per second and the time left."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars  # a rich.progress.Progress
        self._task: Any = None

    def phase(self, name: str, total: int, done: int = 0) -> None:
        """Complete the bar of the previous phase, and start a new one."""
        self.finish()
        super().phase(name, total, done)
        self._task = self._bars.add_task(name, total=total, completed=done, note="")

    def advance(self, units: int, tokens: int = 0) -> None:
        """Report newly finished units."""
        super().advance(units, tokens)
        tokens_per_second, remaining_time = self._speed()
        note = remaining_time
        if tokens_per_second:
            note = f"{tokens_per_second:,.0f} tokens/s  {remaining_time}"
        self._bars.update(self._task, advance=units, note=note)

    def finish(self) -> None:
        """Complete the bar of the last phase."""
        if self._task is not None:
            self._bars.update(self._task, completed=self._total)


@contextmanager
def progress() -> Iterator[Progress]:
    """Show progress on stderr: bars on a terminal, lines elsewhere.

    After Ctrl-C, print the number of finished units.
    """
    with _open_progress() as active_progress:
        try:
            yield active_progress
        except KeyboardInterrupt:
            print(f"\n{active_progress.summary()}", file=sys.stderr)
            raise


@contextmanager
def _open_progress() -> Iterator[_TimedProgress]:
    """Open a progress bar if stderr is a terminal, else progress lines."""
    if not sys.stderr.isatty():
        yield LineProgress()
        return
    from rich import progress as rich
    from rich.console import Console

    with rich.Progress(
        rich.TextColumn("{task.description:>9}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn("{task.fields[note]}"),
        rich.TimeElapsedColumn(),
        console=Console(stderr=True),
    ) as bars:
        bar_progress = BarProgress(bars)
        yield bar_progress
        bar_progress.finish()
