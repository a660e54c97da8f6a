"""The golds of the built-in benchmarks, and the list of benchmarks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fsdpo_bench.cli.app import app
from fsdpo_bench.tasks.load import load_task
from fsdpo_bench.tasks.table import (
    GoldCorrection,
    builtin_tasks,
    normalize_number,
    suites,
)
from gold_checks import check_golds
from typer.testing import CliRunner
from verdicts import grade_requests

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.stages.verdicts import grading_request

#: Benchmarks whose golds are all plain numbers.
PLAIN = {"gsm8k", "svamp", "addsub", "gsm_ic2", "gsm_icm"}
#: Benchmarks with findings: how many golds are missing, and how many are noted.
FINDINGS = {"math": (0, 12), "gk2023": (2, 1), "ocw": (0, 1)}


@pytest.mark.parametrize("name", [*suites()["all"], "math500"])
def test_every_gold_accepts_itself_and_rejects_nonsense(shared: Path, name: str) -> None:
    report = check_golds(builtin_tasks()[name], shared / "data" / "benchmarks")
    missing, noted = FINDINGS.get(name, (0, 0))
    assert [finding for finding in report.findings if finding.is_unexpected] == []
    assert (
        report.has_passed and report.right == report.golds == builtin_tasks()[name].count - missing
    )
    assert len(report.findings) == missing + noted
    assert sum(report.kinds.values()) == report.golds
    assert {"number": report.golds}.items() <= report.kinds.items() or name not in PLAIN


def test_the_missing_golds_are_known(shared: Path) -> None:
    report = check_golds(builtin_tasks()["gk2023"], shared / "data/benchmarks")
    missing = [finding for finding in report.findings if not finding.gold]
    assert [finding.row for finding in missing] == [167, 192]
    assert all("the source has no answer" in finding.description for finding in missing)


def test_a_part_of_a_benchmark_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gsm8k.jsonl").write_text('{"question": "q", "answer": "5"}\n')
    with pytest.raises(InputError, match="1 problems, expected the 1319"):
        check_golds(builtin_tasks()["gsm8k"], tmp_path)


def one_row(tmp_path: Path, answer: str, **changes: object) -> list[str]:
    file = tmp_path / "x.jsonl"
    file.write_text(json.dumps({"question": "q", "answer": answer}) + "\n")
    report = check_golds(replace(builtin_tasks()["gk2023"], count=1, **changes), file)
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


@pytest.mark.parametrize(
    ("value", "gold"),
    [
        ("1.6e-19", "1.6e-19"),
        (6.63e-34, "6.63e-34"),
        ("9007199254740993", "9007199254740993"),
        (12345678901234567890, "12345678901234567890"),
        ("025", "25"),
        ("27.0", "27"),
        (0.6666666666666666, "0.6666666667"),
        ("66.66666666666667", "66.6666666667"),
        ("-0.0", "0"),
    ],
)
def test_tiny_and_large_numeric_golds_keep_their_value(value: object, gold: str) -> None:
    assert normalize_number(value) == gold


@pytest.mark.parametrize("value", ["ten", "nan", "1e999", "1,000"])
def test_numeric_golds_that_are_no_number_are_refused(value: str) -> None:
    with pytest.raises(UnusableRowError, match="answer"):
        normalize_number(value)


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
    assert [(verdict.status, verdict.exactly_correct) for verdict in verdicts] == [
        ("correct", True),
        ("correct", False),
        ("incorrect", False),
        ("incorrect", None),
    ]


def test_a_tolerance_is_a_fraction_of_the_gold() -> None:
    problem = Problem("q", "1000", "own", "test", {"gold_tolerance": 0.05})
    answers = ("1050", "950", "1052", "948")  # 1052 differs by less than 5 % of itself
    verdicts = grade_requests([grading_request(problem, rf"\boxed{{{x}}}") for x in answers])
    assert [verdict.status for verdict in verdicts] == ["correct"] * 2 + ["incorrect"] * 2


def test_tasks_names_every_benchmark() -> None:
    done = CliRunner().invoke(app, ["tasks"], env={"COLUMNS": "200"})
    assert done.exit_code == 0 and all(name in done.output for name in builtin_tasks())
