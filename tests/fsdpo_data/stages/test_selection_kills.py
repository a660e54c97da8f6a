"""Selections that are killed at many moments end in the same bytes."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import pytest
from kill_harness import _phase_seconds
from killing import START, KillMoment, file_digests, run_watched
from paired_data import paired_dataset
from warm import DATA_MODULES, WarmInterpreter

pytestmark = pytest.mark.proof

KILLS = 10
PROBLEMS = 300
SELECT = ("--pass-rate", "0.1..0.9", "--unique", "--per-problem", "3")
SPLITS = ("--split", "validation=0.1", "--split", "test=0.2")


@pytest.fixture(scope="module")
def interpreter() -> Iterator[WarmInterpreter]:
    interpreter = WarmInterpreter(dict(os.environ), DATA_MODULES)
    yield interpreter
    interpreter.stop()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of several files with rewards and pairs."""
    with patch("fsdpo_data.stages.sample.SHARD_SOLUTIONS", PROBLEMS):
        return paired_dataset(tmp_path_factory.mktemp("inputs"), problems=PROBLEMS)


def check_kills(
    arguments: Sequence[str], runs: Path, interpreter: WarmInterpreter, *, dataset: Path
) -> None:
    """Kill a command at moments from its start to its end, resume it, and compare the bytes."""
    # The outputs are always in the same directory, because a card may contain its path.
    out = runs / "out"
    command = [sys.executable, "-m", "fsdpo_data", *arguments, "--out", str(out / "new")]
    env = dict(os.environ)
    expected_source = file_digests(dataset)
    undisturbed = run_watched(command, env, folder=out, interpreter=interpreter)
    assert undisturbed.code == 0, undisturbed.stderr
    expected_outcome = file_digests(out)
    phases = _phase_seconds(undisturbed)
    hit_phases = []
    for index in range(KILLS):
        shutil.rmtree(out)
        phase = list(phases)[index % len(phases)]
        moment = KillMoment(phase, phases[phase] * (index + 0.5) / KILLS)
        killed = run_watched(command, env, folder=out, kill=moment, interpreter=interpreter)
        if killed.code < 0:
            hit_phases.append(killed.last_phase)
        # The second kill hits the resumed command.
        again = KillMoment(START, undisturbed.phase_starts["end"] * (index + 0.5) / KILLS)
        resumed_command = [*command, "--resume"]
        resumed = run_watched(resumed_command, env, folder=out, kill=again, interpreter=interpreter)
        if resumed.code:
            resumed = run_watched(resumed_command, env, folder=out, interpreter=interpreter)
        assert resumed.code == 0, (moment, resumed.stderr)
        assert file_digests(out) == expected_outcome, moment
    assert len(hit_phases) > KILLS // 2 and len(set(hit_phases)) >= 3, hit_phases
    assert file_digests(dataset) == expected_source
    print(f"killed in {hit_phases}")


def test_a_killed_selection_with_splits_ends_in_the_same_bytes(
    dataset: Path, interpreter: WarmInterpreter, tmp_path: Path
) -> None:
    arguments = ["select", str(dataset), *SELECT, *SPLITS]
    check_kills(arguments, tmp_path, interpreter, dataset=dataset)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"new", "new-validation", "new-test"} <= names
