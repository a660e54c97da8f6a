"""Grading in worker processes: the order of verdicts, and pairs that kill or block a worker."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from multiprocessing import current_process
from pathlib import Path

import pytest
from helpers import problem_set, small_build, statistics_of

from fsdpo_data.answers import GradingRequest, Verdict
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.core.errors import UnavailableError
from fsdpo_data.grading.pool import CHUNK_REQUESTS, TIMED_OUT_VERDICT, GraderPool, open_grader


class FragileGrader:
    """A grader that some responses kill, hang or fill with memory."""

    version = "fragile@1"

    def grade(self, requests: Sequence[GradingRequest]) -> list[Verdict]:
        for response in (request.response for request in requests):
            if response == "kill":
                os.kill(os.getpid(), 9)
            elif response == "hang":
                time.sleep(60)
            elif response == "fill":
                bytearray(1 << 60)
            elif response == "raise":
                raise RuntimeError
        return [Verdict("correct", request.response, "ok") for request in requests]


def pairs(count: int, **special: int) -> list[GradingRequest]:
    harm = {position: name for name, position in special.items()}
    return [GradingRequest("5", harm.get(i, str(i))) for i in range(count)]


def test_many_workers_give_the_verdicts_of_one_in_order() -> None:
    items = [
        GradingRequest(str(i % 7), f"The answer is {i % 5}.") for i in range(3 * CHUNK_REQUESTS + 1)
    ]
    with GraderPool(MathGrader, workers=2) as pool:
        assert pool.version == MathGrader().version
        assert pool.grade(items) == MathGrader().grade(items)
        assert pool.grade([]) == []
        assert pool.grade(items[:3]) == MathGrader().grade(items[:3])
        assert pool.replaced_workers == 0


@pytest.mark.parametrize("harm", ["kill", "fill"])
def test_only_the_pair_that_kills_its_worker_has_no_verdict(harm: str) -> None:
    items = pairs(2 * CHUNK_REQUESTS + 5, **{harm: CHUNK_REQUESTS + 3})
    with GraderPool(FragileGrader, workers=2) as pool:
        verdicts = pool.grade(items)
        # The pair kills a worker twice: with its chunk, and when it is graded alone.
        assert pool.replaced_workers == 2
    assert [i for i, verdict in enumerate(verdicts) if verdict == TIMED_OUT_VERDICT] == [
        CHUNK_REQUESTS + 3
    ]
    assert TIMED_OUT_VERDICT.status == "timed_out"
    assert [verdict.answer for verdict in verdicts[:3]] == ["0", "1", "2"]


def test_a_pair_that_blocks_its_worker_is_timed_out() -> None:
    with GraderPool(FragileGrader, workers=1, timeout_seconds=1.5) as pool:
        verdicts = pool.grade(pairs(6, hang=2))
        assert pool.replaced_workers == 2
    assert [verdict.status for verdict in verdicts] == ["correct"] * 2 + ["timed_out"] + [
        "correct"
    ] * 3


class UnstartableGrader(FragileGrader):
    """A grader that can be created in the main process, but not in a worker."""

    def __init__(self) -> None:
        if current_process().name != "MainProcess":
            os._exit(1)


def test_workers_that_cannot_start_are_an_error() -> None:
    with (
        GraderPool(UnstartableGrader, workers=2) as pool,
        pytest.raises(UnavailableError, match="`workers=1`"),
    ):
        pool.grade(pairs(3))


def test_leaving_the_pool_ends_its_processes() -> None:
    with GraderPool(FragileGrader, workers=2) as pool:
        processes = [worker.process for worker in pool._workers]
        assert all(process.is_alive() for process in processes)
    assert not any(process.is_alive() for process in processes)


def test_few_pairs_are_graded_without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    items = pairs(5)
    with open_grader(FragileGrader, len(items), workers=2) as grader:
        assert isinstance(grader, FragileGrader)
    monkeypatch.setattr("fsdpo_data.grading.pool.MIN_REQUESTS_FOR_POOL", 0)
    with open_grader(FragileGrader, len(items), workers=2) as grader:
        assert grader.grade([*items, GradingRequest("5", "kill")])[-1] == TIMED_OUT_VERDICT


def test_one_large_shard_is_graded_by_all_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []

    class RecordingPool(GraderPool):
        def grade(self, requests: Sequence[GradingRequest]) -> list[Verdict]:
            used.append(self._n_workers)
            return super().grade(requests)

    small_build(tmp_path / "one", problem_set(7))
    monkeypatch.setattr("fsdpo_data.stages.write_solutions.MIN_BYTES_FOR_POOL", 0)
    monkeypatch.setattr("fsdpo_data.stages.write_solutions.GraderPool", RecordingPool)
    small_build(tmp_path / "two", problem_set(7), workers=2)
    assert used == [2]
    outcomes = statistics_of(tmp_path / "two").solutions.outcomes
    assert outcomes == {"correct": 7, "incorrect": 14, "no_answer": 7}
    files = [next((tmp_path / name / "solutions").iterdir()) for name in ("one", "two")]
    assert files[0].read_bytes() == files[1].read_bytes()
