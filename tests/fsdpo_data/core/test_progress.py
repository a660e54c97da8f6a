"""Tests of progress reports: they show the remaining time, even for slow units."""

from __future__ import annotations

from typing import Any

import pytest

from fsdpo_data.core import progress
from fsdpo_data.core.progress import BarProgress, LineProgress, time_left


def test_the_time_left_follows_the_pace_so_far() -> None:
    assert time_left(600, 1, 4) == "0:30:00 left" and time_left(5, 0, 4) == ""


def test_a_slow_batch_has_an_eta(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    line_progress = LineProgress()
    line_progress.phase("sample", 4)
    clock[0] = 3600.0
    line_progress.advance(1, 720)
    assert "sample: 1/4, 0 tokens/s, 3:00:00 left" in capsys.readouterr().err


def test_so_has_its_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, updates = [0.0], list[Any]()

    class Bars:
        def add_task(self, name: str, **fields: Any) -> str:
            return name

        def update(self, task: str, **fields: Any) -> None:
            updates.append((task, fields["advance"], fields["note"]))

    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    bar = BarProgress(Bars())
    bar.phase("sample", 4)
    clock[0] = 3600.0
    bar.advance(1, 7200)
    assert updates == [("sample", 1, "2 tokens/s  3:00:00 left")]


def test_the_summary_names_the_units_of_an_unfinished_batch() -> None:
    line_progress = LineProgress()
    line_progress.phase("gsm8k", 100)
    line_progress.advance(12)
    assert line_progress.summary() == "gsm8k: 12 of 100 are done"
    line_progress.discard(12)
    text = "gsm8k: 0 of 100 are done; 12 more of an unfinished batch are not saved"
    assert line_progress.summary() == text
