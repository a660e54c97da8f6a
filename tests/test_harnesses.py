"""The comparison of graders: limits, continuation and the adjudicated rows."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks/grading"))
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
    harnesses.grade_rows(command, rows, file, workers=2, seconds=5.0, bar=NO_PROGRESS)
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


def test_a_score_is_a_dash_if_the_grader_has_another_task() -> None:
    rows = [pool_row(str(i), "", problem=str(i // 2)) for i in range(4)]
    accepted = {"0": True, "1": True, "2": None, "3": False}
    metric = harnesses.MetricVerdicts("ours", accepted)
    assert harnesses.format_score(metric, rows).startswith("50.0 [")
    assert harnesses.format_score(metric, [*rows, pool_row("4", "")]) == "–"


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
    lines = (ROOT / "benchmarks/measured/harnesses.txt").read_text("utf-8").splitlines()
    names = {name for row in ADJUDICATED for name in row["verdicts"]}
    assert len(names) > 8
    for name in names:
        [line] = (line for line in lines if line[:44].strip() == name)
        verdicts = {
            row["response_id"]: row["verdicts"][name]
            for row in ADJUDICATED
            if name in row["verdicts"]
        }
        counts = harnesses.adjudicated_counts(ADJUDICATED, verdicts)
        assert [int(count) for count in line.split()[-5:]] == list(counts)


def test_the_page_has_the_measured_counts_of_every_grader() -> None:
    """Except those of ours from before the corrections, which cannot be measured again."""
    page = (ROOT / "docs/harnesses.md").read_text("utf-8")
    lines = (ROOT / "benchmarks/measured/harnesses.txt").read_text("utf-8").splitlines()
    rows = re.findall(r"^\| (.+?) \| (\d+ \| \d+ \| \d+ \| \d+ \| \d+) \|$", page, flags=re.M)
    assert "before any correction" in rows[0][0]
    for name, counts in rows[1:]:
        short_name = re.sub(r" \(not applicable\)$|, `math@5`: .*", "", name)
        [line] = (line for line in lines if line[:44].strip() == short_name)
        assert line.split()[-5:] == counts.split(" | ")
    assert len(rows) == 11
