"""Tests of ``fsdpo-bench validate``, ``list`` and ``grade --explain``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fsdpo_bench.cli.app import main
from fsdpo_bench.runs.validate import validate_task
from fsdpo_bench.tasks.load import load_task
from fsdpo_bench.tasks.table import GoldCorrection, builtin_tasks, suites

from fsdpo_data.core.entities import Problem
from fsdpo_data.grading.pool import grade_requests
from fsdpo_data.stages.requests import grading_request


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["fsdpo-bench", *arguments])
        patch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as caught:
            main()
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return int(caught.value.code or 0), out, err


#: Benchmarks whose golds are all plain numbers.
PLAIN = {"gsm8k", "svamp", "addsub", "gsm_ic2", "gsm_icm"}
#: Benchmarks with findings: how many golds are missing, and how many are noted.
FINDINGS = {"math": (0, 12), "gk2023": (2, 1), "ocw": (0, 1)}


@pytest.mark.parametrize("name", [*suites()["all"], "math500"])
def test_every_gold_accepts_itself_and_rejects_nonsense(shared: Path, name: str) -> None:
    report = validate_task(builtin_tasks()[name], shared / "data" / "benchmarks")
    missing, noted = FINDINGS.get(name, (0, 0))
    assert [finding for finding in report.findings if finding.is_unexpected] == []
    assert (
        report.has_passed and report.right == report.golds == builtin_tasks()[name].count - missing
    )
    assert len(report.findings) == missing + noted
    assert sum(report.kinds.values()) == report.golds
    assert {"number": report.golds}.items() <= report.kinds.items() or name not in PLAIN


def test_the_command_lists_the_two_golds_that_are_missing(
    capsys: pytest.CaptureFixture[str], shared: Path
) -> None:
    data = str(shared / "data" / "benchmarks")
    code, out, _ = run(capsys, "validate", "--task", "gk2023", "--data", data)
    assert code == 0
    for row in (167, 192):
        assert f"row  {row}  known  '': the source has no answer" in out
    newer = str(shared / "data/newer/benchmarks")
    _, out, _ = run(capsys, "validate", "--task", "amc23", "--data", newer)
    assert "known: golds are floats (27.0)" in out
    code, out, _ = run(capsys, "validate", "--task", "ocw", "--data", data, "--json")
    [report] = json.loads(out)
    assert (report["task"], report["passed"], report["right"]) == ("ocw", True, 272)


def test_an_unexpected_finding_is_listed_and_exits_with_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "gsm8k.jsonl").write_text('{"question": "q", "answer": "5"}\n')
    code, out, _ = run(capsys, "validate", "--task", "gsm8k", "--data", str(tmp_path))
    assert code == 1
    assert "not ok" in out and "1 problems, expected the 1319" in out


def one_row(tmp_path: Path, answer: str, **changes: object) -> list[str]:
    file = tmp_path / "x.jsonl"
    file.write_text(json.dumps({"question": "q", "answer": answer}) + "\n")
    report = validate_task(replace(builtin_tasks()["gk2023"], count=1, **changes), file)
    assert not report.has_passed, "its digest is not the known one"
    return [
        f"{finding.description}!" if finding.is_unexpected else finding.description
        for finding in report.findings
    ]


def test_more_missing_golds_than_declared_are_unexpected(tmp_path: Path) -> None:
    assert one_row(tmp_path, "") == ["the source has no answer; it is left out of the score!"]
    assert one_row(tmp_path, "", missing_golds=1)[0].endswith("score")
    assert one_row(tmp_path, "5") == []


def test_a_gold_that_equals_the_nonsense_answer_is_unexpected(tmp_path: Path) -> None:
    assert one_row(tmp_path, "-98765432.125") == [
        "for 'The answer is -98765432.125' the verdict is correct!"
    ]


def test_corrections_replace_golds_and_add_alternatives(tmp_path: Path) -> None:
    problem = Problem("q", "(3,-5)", "math", "test", {"alternative_golds": ["(0,0)"]})
    responses = ["\\boxed{(3,-5)}", "\\boxed{(0,0)}", "\\boxed{(3,-5)} or \\boxed{(1,2)}", ""]
    verdicts = grade_requests([grading_request(problem, response) for response in responses])
    assert [verdict.status for verdict in verdicts] == [
        "correct",
        "correct",
        "incorrect",
        "no_answer",
    ]
    assert GoldCorrection("why").gold == ""


def test_only_problems_with_a_tolerance_have_a_strict_verdict(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"problem": "q", "answer": "4.4677e14"}\n')
    ocw = replace(builtin_tasks()["ocw"], count=1)
    [tolerant] = load_task(ocw, file).problems
    [plain] = load_task(replace(ocw, tolerance=None), file).problems
    responses = [
        (tolerant, r"\boxed{4.4677e14}"),
        (tolerant, r"\boxed{4.45e14}"),
        (tolerant, r"\boxed{4.4e14}"),
        (plain, r"\boxed{4.45e14}"),
    ]
    verdicts = grade_requests([grading_request(*response) for response in responses])
    assert [(verdict.status, verdict.strict) for verdict in verdicts] == [
        ("correct", True),
        ("correct", False),
        ("incorrect", False),
        ("incorrect", None),
    ]


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
        (["grade", "x", "--explain", "1", "1"], "either DATA or --explain"),
        (["grade", "nosuch.jsonl"], "nosuch.jsonl: cannot be read"),
        (["grade", "--explain", "1", "1", "--tolerance", "2"], "--tolerance 2: expected"),
        (["validate", "--suite", "odd"], "Nearest: ood"),
        (["validate", "--task", "addsub"], "addsub"),
    ],
)
def test_invalid_arguments_are_named(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 1 and message in out.replace("AddSub", "addsub") + err


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
    assert "published as incorrect" in out
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
    _, out, _ = run(capsys, "grade", str(file), "--task", "ocw", "--json")
    [series] = json.loads(out)
    assert (series["correct"], series["exact_correct"], series["n"]) == (2, 1, 3)


def test_series_of_a_published_file(capsys: pytest.CaptureFixture[str], shared: Path) -> None:
    file = shared / "data" / "outputs" / "openai_gsm8k" / "example_model_solutions.jsonl"
    _, out, _ = run(capsys, "grade", str(file), "--task", "gsm8k", "--json")
    counts = {row["series"]: (row["correct"], row["published_correct"]) for row in json.loads(out)}
    assert counts["175b_verification"] == (742, 742) and len(counts) == 4


def test_list_names_every_task(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "tasks")
    assert code == 0 and all(name in out for name in builtin_tasks())
