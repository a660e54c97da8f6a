"""Benchmarks of today: every gold is itself, and the traps of their public copies are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from fsdpo_bench.tasks.grade import TaskResponse, grade_task_responses
from fsdpo_bench.tasks.load import LoadedTask, load_task
from fsdpo_bench.tasks.table import builtin_tasks, get_task, suites
from fsdpo_bench.tasks.validate import validate_task
from hub_only import OMNI, save_hub_only

NEWER = [name for name, task in builtin_tasks().items() if task.files]

#: Other copies of one benchmark.
COPIES = [("aime24", "aime24/qwen_test.jsonl"), ("aime25", "aime25/areal_test.jsonl")]


@pytest.fixture(scope="module")
def newer(shared: Path) -> Path:
    return shared / "data/newer/benchmarks"


def loaded(newer: Path, name: str) -> LoadedTask:
    return load_task(builtin_tasks()[name], newer)


@pytest.mark.parametrize("name", NEWER)
def test_every_gold_is_itself_and_the_rows_are_the_known_ones(newer: Path, name: str) -> None:
    report = validate_task(builtin_tasks()[name], newer)
    assert [finding for finding in report.findings if finding.is_unexpected] == []
    assert report.has_passed and report.right == report.golds == builtin_tasks()[name].count
    assert "boxed" not in " ".join(finding.description for finding in report.findings)


@pytest.mark.parametrize("name", NEWER)
def test_no_instruction_is_left_inside_a_question(newer: Path, name: str) -> None:
    asked = " ".join(problem.question for problem in loaded(newer, name).problems)
    assert "Please reason step by step" not in asked


@pytest.mark.parametrize(("name", "file"), COPIES)
def test_copies_have_the_same_golds(newer: Path, name: str, file: str) -> None:
    """Zero-padded, as integers or as text; their questions differ in white space."""
    ours, theirs = loaded(newer, name), load_task(builtin_tasks()[name], newer / file)
    golds = [sorted(problem.answer for problem in each.problems) for each in (ours, theirs)]
    assert golds[0] == golds[1] and not any(gold.startswith("0") for gold in golds[0])
    assert "texts or golds differ" in theirs.warnings[0]


def test_golds_that_public_copies_spoil(newer: Path) -> None:
    assert {p.answer for p in loaded(newer, "amc23").problems} >= {"27", "36"}
    [mended] = [p for p in loaded(newer, "hmmt_nov_2025").problems if "gold_note" in p.metadata]
    assert mended.answer == r"\frac{\sqrt{7} + 1}{2}"
    several = [
        p for p in loaded(newer, "olympiadbench").problems if p.metadata["is_multiple_answer"]
    ]
    assert len(several) == 94 and not any("$" in p.answer for p in several)
    table = loaded(newer, "tabmwp").problems[0].question
    assert table.startswith("Read the following table regarding")


def test_a_number_is_wrong_where_a_question_cannot_be_answered(newer: Path) -> None:
    whole = loaded(newer, "gsm_plus")
    unanswerable = [p for p in whole.problems if p.answer == "None"]
    assert len(unanswerable) == 300
    said = [TaskResponse(unanswerable[0], text) for text in (r"\boxed{5}", r"\boxed{\text{None}}")]
    assert [each.verdict.status for each in grade_task_responses(whole.task, said)] == [
        "incorrect",
        "correct",
    ]
    kinds = {whole.task.record_metadata(p.metadata)["perturbation"] for p in whole.problems}
    assert len(kinds) == 8 and len({p.metadata["cluster"] for p in whole.problems}) == 300


def test_every_seed_of_gsm_plus_is_a_question_of_its_seeds(newer: Path, shared: Path) -> None:
    seeds = builtin_tasks()[builtin_tasks()["gsm_plus"].base_task]
    asked = {each.question for each in load_task(seeds, shared / "data/benchmarks").problems}
    clusters = {each.metadata["cluster"] for each in loaded(newer, "gsm_plus").problems}
    assert len(clusters) == 300 and clusters <= asked


def test_the_error_that_one_row_allows_is_for_that_row_alone(newer: Path) -> None:
    whole = loaded(newer, "olympiadbench")
    [noted] = [p for p in whole.problems if "gold_tolerance" in p.metadata]
    other = next(p for p in whole.problems if p.answer.isdecimal() and len(p.answer) > 2)
    near = str(int(other.answer) + 1)
    said = [
        TaskResponse(noted, r"\boxed{4.3}"),
        TaskResponse(noted, r"\boxed{4.31}"),
        TaskResponse(other, rf"\boxed{{{near}}}"),
    ]
    judged = grade_task_responses(whole.task, said)
    assert [each.verdict.status for each in judged] == ["correct", "incorrect", "incorrect"]
    assert judged[0].strict.status == "incorrect"
    assert (
        whole.task.record_metadata(noted.metadata)["gold_tolerance"]
        == noted.metadata["gold_tolerance"]
    )


def test_every_value_of_a_gold_with_several_is_needed(newer: Path) -> None:
    whole = loaded(newer, "math_perturb_hard")
    problem = next(p for p in whole.problems if p.answer == "0 or 4")
    said = [TaskResponse(problem, text) for text in (r"\boxed{4}", r"\boxed{4, 0}")]
    assert [each.verdict.status for each in grade_task_responses(whole.task, said)] == [
        "incorrect",
        "correct",
    ]


def test_what_a_program_can_score_of_omni_math() -> None:
    row = builtin_tasks()["omni_math"].row
    assert row({"problem": "p", "answer": r"\frac{1}{2}"}) is not None
    assert (
        row({"problem": "p", "answer": "All such functions are linear with slope at most one"})
        is None
    )
    assert row({"problem": "p", "answer": ""}) is None


def test_what_only_the_hub_has_is_read_from_files_too(tmp_path: Path) -> None:
    folder = save_hub_only(tmp_path)
    symbolic, omni = (
        load_task(builtin_tasks()[name], folder) for name in ("gsm_symbolic", "omni_math")
    )
    assert len(symbolic.problems) == 5000 and symbolic.problems[-1].answer == "148"
    assert [problem.answer for problem in omni.problems] == OMNI[:3] * 10
    for whole in (symbolic, omni):
        assert validate_task(whole.task, folder).has_passed


def test_few_problems_are_reported_by_several_samples() -> None:
    olympiad = [builtin_tasks()[name] for name in suites()["olympiad"]]
    assert {task.metric for task in olympiad if (task.count or 100) <= 40} == {"avg@8"}
    assert set(suites()) >= {"in-domain", "ood", "all", "smoke", "olympiad", "robustness"}


def test_every_file_on_the_shelf_says_where_it_is_from() -> None:
    for task in builtin_tasks().values():
        assert task.licence and task.source, task.name
        assert get_task(task.name) is task
