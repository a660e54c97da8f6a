"""`fsdpo-bench grade FILE`: verdicts and accuracy of recorded responses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run
from fsdpo_bench.cli.app import main

from fsdpo_data.core.statistics import wilson_interval


def write_responses(folder: Path, n_problems: int, n_samples: int) -> Path:
    """Write one row per response: every second problem is always right, the others never."""
    rows = [
        {"question": f"What is {n} + 1?", "answer": str(n + 1), "response": f"\\boxed{{{answer}}}"}
        for n in range(n_problems)
        for answer in [n + 1 if n % 2 else n] * n_samples
    ]
    file = folder / "outputs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_repeated_questions_do_not_narrow_the_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_responses(tmp_path, n_problems=40, n_samples=8)
    code, out, _ = run(capsys, "grade", str(file), "--json", main=main)
    [scores] = json.loads(out)
    assert code == 0 and (scores["correct"], scores["n"]) == (160, 320)
    low, high = scores["ci95"]
    assert high - low > 0.29  # the responses to a problem are equal: 40 values, not 320
    assert scores["ci95"] == pytest.approx(wilson_interval([0, 8] * 20, [8] * 40))
    assert scores["upper_bound_ci95"] == scores["ci95"]


def test_the_verdicts_are_written_to_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_responses(tmp_path, n_problems=4, n_samples=1)
    out = tmp_path / "verdicts.jsonl"
    assert run(capsys, "grade", str(file), "--out", str(out), main=main)[0] == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["status"] for row in rows] == ["incorrect", "correct"] * 2
    assert rows[1] == {
        "row": 2,
        "series": "",
        "question": "What is 1 + 1?",
        "gold": "2",
        "response": "\\boxed{2}",
        "answer": "2",
        "status": "correct",
        "rule": rows[1]["rule"],
        "published": None,
    }
    for path in (out, tmp_path / "folder"):
        code, _, err = run(capsys, "grade", str(file), "--out", str(path), main=main)
        assert code == 1 and "expected a new file ending in .jsonl" in err
    assert not (tmp_path / "folder").exists()


def test_a_row_without_a_usable_problem_is_graded_or_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Grading needs no question, and one missing gold does not stop the other rows."""
    rows = [
        {"answer": "B", "response": r"\boxed{B}", "choices": ["3", "4"]},
        {"answer": "N/A", "response": r"\boxed{7}"},
    ]
    file = tmp_path / "outputs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, err = run(capsys, "grade", str(file), "--json", main=main)
    assert code == 0, err
    [scores] = json.loads(out)
    assert scores["outcomes"] == {"correct": 1, "gold_unparsed": 1}
