"""The comparison of graders: limits, continuation, sampling and the adjudicated rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks/grading"))
import blind_sample  # noqa: E402
import harnesses  # noqa: E402

from fsdpo_data.core.progress import NO_PROGRESS  # noqa: E402

ADJUDICATED = harnesses.read_lines(harnesses.ADJUDICATED)
#: A worker that accepts "right", ends at "die", and does not answer to "hang".
WORKER = """
import json, os, sys, time
print("{}", flush=True)
for line in sys.stdin:
    response = json.loads(line)["response"]
    if response == "die":
        os._exit(1)
    if response == "hang":
        time.sleep(60)
    verdict = {"correct": {"": response == "right"}, "seconds": 0.1, "failure": ""}
    print(json.dumps(verdict), flush=True)
"""


def pool_row(key: str, response: str, **values: Any) -> harnesses.PoolRow:
    fields = {
        "pool": "gsm8k",
        "model": "",
        "problem": key,
        "question": "1 + 1?",
        "gold": "2",
        "solution": "",
        "authors_correct": True,
    }
    return harnesses.PoolRow(key=key, response=response, **(fields | values))


def grade(tmp_path: Path, rows: list[harnesses.PoolRow]) -> dict[str, dict[str, Any]]:
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER, encoding="utf-8")
    command = [sys.executable, str(worker), "a grader"]
    file = tmp_path / "verdicts.jsonl"
    harnesses.grade_rows(command, rows, file, workers=2, seconds=2.0, bar=NO_PROGRESS)
    return harnesses.read_verdicts(file)


def test_an_answer_that_hangs_or_ends_the_grader_is_a_failure(tmp_path: Path) -> None:
    responses = ["right", "hang", "wrong", "die", "right"]
    lines = grade(tmp_path, [pool_row(str(i), text) for i, text in enumerate(responses)])
    assert [lines[str(i)]["failure"] for i in range(5)] == [
        "",
        "timed out",
        "",
        "the process ended",
        "",
    ]
    assert [lines[str(i)]["correct"].get("") for i in range(5)] == [True, None, False, None, True]


def test_a_second_call_grades_only_what_is_missing(tmp_path: Path) -> None:
    grade(tmp_path, [pool_row("0", "right")])
    lines = grade(tmp_path, [pool_row("0", "wrong"), pool_row("1", "wrong")])
    assert lines["0"]["correct"] == {"": True}
    assert lines["1"]["correct"] == {"": False}


def test_a_grader_that_does_not_start_is_reported(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit(1)", "a grader"]
    with pytest.raises(SystemExit, match="does not start"):
        harnesses.grade_rows(
            command, [pool_row("0", "right")], tmp_path / "v.jsonl", 1, 2.0, NO_PROGRESS
        )


def test_our_worker_grades_a_row(tmp_path: Path) -> None:
    command = [sys.executable, str(harnesses.WORKER), "fsdpo"]
    process = harnesses.GraderProcess(command, seconds=60.0)
    verdict = process.grade(pool_row("0", "The answer is 2."))
    process.close()
    assert verdict["correct"] == {"": True}
    assert not verdict["failure"]


def test_tables_count_disagreements_with_ours() -> None:
    rows = [pool_row(str(i), "", problem=str(i // 2)) for i in range(4)]
    verdicts: list[tuple[bool | None, bool]] = [
        (True, True),
        (True, False),
        (None, True),
        (False, False),
    ]
    ours = harnesses.MetricVerdicts(
        "fsdpo", {str(i): pair[0] for i, pair in enumerate(verdicts)}, frozenset(), {}
    )
    theirs = harnesses.MetricVerdicts(
        "theirs", {str(i): pair[1] for i, pair in enumerate(verdicts)}, frozenset(("3",)), {}
    )
    values = harnesses.grader_values(theirs, ours, rows)
    assert values["score"] == 0.5
    assert values["only_this_grader_accepts"] == values["only_ours_accepts"] == 1
    assert values["failures"] == 1
    assert harnesses.grader_values(ours, ours, rows)["undecided"] == 1


def test_a_blind_sample_has_each_answer_once_and_no_verdict(tmp_path: Path) -> None:
    rows = [pool_row(str(i), f"The answer is {i // 2}.", problem="a") for i in range(8)]
    metrics = [
        harnesses.MetricVerdicts(name, {row.key: accepts for row in rows}, frozenset(), {})
        for name, accepts in (("fsdpo", True), ("theirs", False))
    ]
    strata = blind_sample.group_disagreements(rows, metrics)
    assert set(strata) == {("gsm8k", "fsdpo", "theirs")}
    assert len(blind_sample.draw_sample(strata, per_pair=9, per_problem=9)) == 4
    assert len(blind_sample.draw_sample(strata, per_pair=9, per_problem=3)) == 3
    assert len(blind_sample.draw_sample(strata, per_pair=2, per_problem=9)) == 2


def test_adjudicated_rows_have_a_verdict_a_reason_and_a_source() -> None:
    assert len(ADJUDICATED) >= 300
    assert len({row["response_id"] for row in ADJUDICATED}) == len(ADJUDICATED)
    for row in ADJUDICATED:
        assert row["equal"] in (True, False, None)
        assert row["reason"]
        assert len(row["tail"]) <= 500
        assert row["source"].endswith(("CC-BY-4.0", "Apache-2.0"))
        assert len({bool(verdict) for verdict in row["verdicts"].values()}) == 2


def test_the_measured_table_counts_the_adjudicated_rows() -> None:
    table = json.loads((ROOT / "benchmarks/measured/harnesses.json").read_text("utf-8"))
    names = dict.fromkeys(item["grader"] for item in table["adjudicated"])
    metrics = [
        harnesses.MetricVerdicts(
            name,
            {
                row["response_id"]: row["verdicts"][name]
                for row in ADJUDICATED
                if name in row["verdicts"]
            },
            frozenset(),
            {},
        )
        for name in names
    ]
    assert harnesses.adjudicated_counts(ADJUDICATED, metrics) == table["adjudicated"]
