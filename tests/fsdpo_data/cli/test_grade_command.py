"""`fsdpo-data grade` of a file of responses, and of one response."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run

from fsdpo_data.answers.grader import GRADER_NAME
from fsdpo_data.core.statistics import wilson_interval

#: The grader with the tolerance of OCWCourses.
TOLERANT = f"{GRADER_NAME}+tolerance=0.01"


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
    code, out, _ = run(capsys, "grade", str(file), "--json")
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
    assert run(capsys, "grade", str(file), "--out", str(out))[0] == 0
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
        "recorded": None,
    }
    for path in (out, tmp_path / "folder"):
        code, _, err = run(capsys, "grade", str(file), "--out", str(path))
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
    code, out, err = run(capsys, "grade", str(file), "--json")
    assert code == 0, err
    [scores] = json.loads(out)
    assert scores["outcomes"] == {"correct": 1, "gold_unparsed": 1}


def test_each_model_of_a_file_has_its_own_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"model": model, "question": f"{n} + 1?", "answer": str(n + 1), "response": str(n + shift)}
        for n in range(2)
        for model, shift in (("mA", 1), ("mB", 2))
    ]
    file = tmp_path / "outputs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scores = json.loads(run(capsys, "grade", str(file), "--json")[1])
    counts = [(row["series"], row["correct"], row["n"]) for row in scores]
    assert counts == [("mA", 2, 2), ("mB", 0, 2)]
    [only] = json.loads(run(capsys, "grade", str(file), "--series", "mB", "--json")[1])
    assert (only["series"], only["correct"], only["n"]) == ("mB", 0, 2)
    code, _, err = run(capsys, "grade", str(file), "--series", "mC")
    assert code == 1 and "Its models are mA, mB" in " ".join(err.split())


def test_recorded_verdicts_have_the_same_denominator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second row has no gold, so neither our verdict nor the recorded one counts."""
    rows = [
        {"answer": "4", "response": r"\boxed{4}", "correct": True},
        {"answer": "N/A", "response": r"\boxed{7}", "correct": True},
        {"answer": "5", "response": r"\boxed{6}", "correct": True},
    ]
    file = tmp_path / "outputs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    [scores] = json.loads(run(capsys, "grade", str(file), "--json")[1])
    assert (scores["correct"], scores["n"]) == (1, 2)
    assert (scores["recorded_correct"], scores["disputed"]) == (2, 1)


def test_explain_prints_the_rules_of_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "grade", "--explain", "1/2", "Thus \\boxed{0.5}, I think.")
    assert code == 0
    fields = {line[:18].strip(): line[18:].strip() for line in out.splitlines()}
    assert fields["status"] == "correct" and fields["answer"] == "0.5"
    assert fields["extracted by"] == "boxed" and fields["compared by"] not in ("", "–")
    assert fields["gold is read as"] and fields["answer is read as"]


def test_explain_takes_negative_numbers_and_markup_as_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, out, _ = run(capsys, "grade", "--explain", "-3", "-3")
    assert "status             correct" in out
    _, out, _ = run(capsys, "grade", "--explain", "[bold]", "[0,1)")
    assert "[bold]" in out and "[0,1)" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grade"], "either DATA or --explain is required"),
        (["grade", "--explain", "1", "1", "x"], "and no other word, but 'x' follows"),
        (["grade", "nosuch.jsonl"], "nosuch.jsonl: cannot be read"),
        (["grade", "--explain", "1", "1", "--grader", "math@0"], "'math@0' is not in this release"),
        (["grade", "--explain", "1", "1", "--show", "3"], "response does not read this option"),
        (["grade", "folder", "--gold-field", "a"], "dataset does not read this option"),
        (["grade", "x.jsonl", "--judge", "tiny"], "a judge decides the undecided answers of a"),
        (["grade", "folder"], "--out: missing. Grading a dataset writes a new dataset"),
    ],
)
def test_invalid_arguments_are_named(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 1 and message in out + err


ROWS = [
    {"answer": "5", "response": "The answer is 5.", "correct": True},
    {"answer": "5", "response": "The answer is 6.", "correct": False},
    {"answer": "1/2", "response": "So it is 0.5 then.", "correct": False},
    {"answer": "", "response": "The answer is 6.", "correct": False},
]


def test_recorded_responses_are_scored(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    code, out, _ = run(capsys, "grade", str(file))
    assert code == 0
    [row] = [line.split() for line in out.splitlines() if line.startswith("all")]
    assert row[1:11] == ["2", "3", "66.7", "%", "[20.8,", "93.9]", "1", "2", "1", "1"]
    assert "row 3: gold '1/2', answer '0.5': correct (last-number/" in out
    assert "recorded as incorrect" in out
    _, out, _ = run(capsys, "grade", str(file), "--show", "0")
    assert "1 more; --show 1 shows all" in out
    _, out, _ = run(capsys, "grade", str(file), "--json")
    [series] = json.loads(out)
    assert (series["correct"], series["n"], series["disputed"]) == (2, 3, 1)
    assert (series["marked_correct"], series["exact_correct"]) == (1, 2)
    assert series["outcomes"] == {"correct": 2, "gold_unparsed": 1, "incorrect": 1}


def test_tolerant_and_exact_counts_are_reported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "x.jsonl"
    answers = ("4.5e33", r"4.52\times 10^{33}", "4.9e33")
    rows = [{"answer": "4.5e33", "response": f"The answer is ${answer}$."} for answer in answers]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, out, _ = run(capsys, "grade", str(file), "--grader", TOLERANT, "--json")
    [series] = json.loads(out)
    assert (series["correct"], series["exact_correct"], series["n"]) == (2, 1, 3)


def test_series_of_a_published_file(capsys: pytest.CaptureFixture[str], shared: Path) -> None:
    file = shared / "data" / "outputs" / "openai_gsm8k" / "example_model_solutions.jsonl"
    _, out, _ = run(capsys, "grade", str(file), "--json")
    counts = {row["series"]: (row["correct"], row["recorded_correct"]) for row in json.loads(out)}
    assert counts["175b_verification"] == (742, 742) and len(counts) == 4
