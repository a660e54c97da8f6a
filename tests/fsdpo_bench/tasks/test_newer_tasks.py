"""Newer benchmarks: valid golds, and the known errors of their public mirrors."""

from __future__ import annotations

from pathlib import Path

import pytest
from fsdpo_bench.tasks.load import LoadedTask, load_task
from fsdpo_bench.tasks.problems import benchmark_problems
from fsdpo_bench.tasks.table import builtin_tasks, get_task, suites
from gold_checks import check_golds
from hub_only import OMNI, save_hub_only
from verdicts import grade_requests

from fsdpo_data.core.entities import Problem
from fsdpo_data.stages.verdicts import grading_request

NEWER = [name for name, task in builtin_tasks().items() if task.files]

#: Mirrors of a benchmark.
MIRRORS = [("aime24", "aime24/qwen_test.jsonl"), ("aime25", "aime25/areal_test.jsonl")]


@pytest.fixture(scope="module")
def newer(shared: Path) -> Path:
    return shared / "data/newer/benchmarks"


def load_newer_task(newer: Path, name: str) -> LoadedTask:
    return load_task(builtin_tasks()[name], newer)


@pytest.mark.parametrize("name", NEWER)
def test_every_gold_matches_itself_and_rows_match_the_digest(newer: Path, name: str) -> None:
    report = check_golds(builtin_tasks()[name], newer)
    assert [finding for finding in report.findings if finding.is_unexpected] == []
    assert report.has_passed and report.right == report.golds == builtin_tasks()[name].count
    assert "boxed" not in " ".join(finding.description for finding in report.findings)


@pytest.mark.parametrize("name", NEWER)
def test_no_instruction_is_left_inside_a_question(newer: Path, name: str) -> None:
    questions = " ".join(problem.question for problem in load_newer_task(newer, name).problems)
    assert "Please reason step by step" not in questions


@pytest.mark.parametrize(("name", "file"), MIRRORS)
def test_public_mirrors_have_the_same_golds(newer: Path, name: str, file: str) -> None:
    """Mirrors write golds zero-padded, as integers or as text, and vary white space."""
    ours = load_newer_task(newer, name)
    theirs = load_task(builtin_tasks()[name], newer / file)
    golds = [
        sorted(problem.answer for problem in loaded_task.problems) for loaded_task in (ours, theirs)
    ]
    assert golds[0] == golds[1] and not any(gold.startswith("0") for gold in golds[0])
    assert "questions or golds differ" in theirs.warnings[0]


def test_golds_that_public_mirrors_get_wrong_are_correct_here(newer: Path) -> None:
    assert {p.answer for p in load_newer_task(newer, "amc23").problems} >= {"27", "36"}
    [corrected] = [
        p for p in load_newer_task(newer, "hmmt_nov_2025").problems if "gold_note" in p.metadata
    ]
    assert corrected.answer == r"\frac{\sqrt{7} + 1}{2}"
    several = [
        p
        for p in load_newer_task(newer, "olympiadbench").problems
        if p.metadata["is_multiple_answer"]
    ]
    assert len(several) == 94 and not any("$" in p.answer for p in several)
    table = load_newer_task(newer, "tabmwp").problems[0].question
    assert table.startswith("Read the following table regarding")


def statuses(problem: Problem, *responses: str) -> list[str]:
    verdicts = grade_requests([grading_request(problem, response) for response in responses])
    return [verdict.status for verdict in verdicts]


def test_a_number_is_wrong_for_an_unanswerable_question(newer: Path) -> None:
    gsm_plus = load_newer_task(newer, "gsm_plus")
    unanswerable = [p for p in gsm_plus.problems if p.answer == "None"]
    assert len(unanswerable) == 300
    assert statuses(unanswerable[0], r"\boxed{5}", r"\boxed{\text{None}}") == [
        "incorrect",
        "correct",
    ]
    kinds = {gsm_plus.task.problem_groups(p.metadata)["perturbation"] for p in gsm_plus.problems}
    assert len(kinds) == 8 and len({p.metadata["cluster"] for p in gsm_plus.problems}) == 300


def test_every_seed_of_gsm_plus_is_a_question_of_its_seeds(newer: Path, shared: Path) -> None:
    seeds = builtin_tasks()[builtin_tasks()["gsm_plus"].base_task]
    seed_questions = {
        problem.question for problem in load_task(seeds, shared / "data/benchmarks").problems
    }
    clusters = {
        problem.metadata["cluster"] for problem in load_newer_task(newer, "gsm_plus").problems
    }
    assert len(clusters) == 300 and clusters <= seed_questions


def test_the_tolerance_of_one_row_does_not_apply_to_other_rows(newer: Path) -> None:
    olympiadbench = load_newer_task(newer, "olympiadbench")
    [noted] = [p for p in olympiadbench.problems if "gold_tolerance" in p.metadata]
    other = next(p for p in olympiadbench.problems if p.answer.isdecimal() and len(p.answer) > 2)
    near = str(int(other.answer) + 1)
    [tolerant] = grade_requests([grading_request(noted, r"\boxed{4.3}")])
    assert (tolerant.status, tolerant.exactly_correct) == ("correct", False)
    assert statuses(noted, r"\boxed{4.31}") == ["incorrect"]
    assert statuses(other, rf"\boxed{{{near}}}") == ["incorrect"]
    noted_row = olympiadbench.problems.index(noted)
    [dataset_problem] = benchmark_problems([olympiadbench.subset([noted_row])]).problems
    assert dataset_problem.gold_tolerance == noted.gold_tolerance


def test_all_values_of_a_gold_with_several_values_are_required(newer: Path) -> None:
    math_perturb = load_newer_task(newer, "math_perturb_hard")
    problem = next(p for p in math_perturb.problems if p.answer == "0 or 4")
    assert statuses(problem, r"\boxed{4}", r"\boxed{4, 0}") == ["incorrect", "correct"]


def test_omni_math_keeps_only_automatically_gradable_rows() -> None:
    row = builtin_tasks()["omni_math"].row
    assert row({"problem": "p", "answer": r"\frac{1}{2}"}) is not None
    assert (
        row({"problem": "p", "answer": "All such functions are linear with slope at most one"})
        is None
    )
    assert row({"problem": "p", "answer": ""}) is None


def test_hub_only_tasks_can_be_read_from_files(tmp_path: Path) -> None:
    folder = save_hub_only(tmp_path)
    symbolic, omni = (
        load_task(builtin_tasks()[name], folder) for name in ("gsm_symbolic", "omni_math")
    )
    assert len(symbolic.problems) == 5000 and symbolic.problems[-1].answer == "148"
    assert [problem.answer for problem in omni.problems] == OMNI[:3] * 10
    for loaded_task in (symbolic, omni):
        assert check_golds(loaded_task.task, folder).has_passed


def test_small_benchmarks_report_avg_at_8() -> None:
    olympiad = [builtin_tasks()[name] for name in suites()["olympiad"]]
    assert {task.metric for task in olympiad if (task.count or 100) <= 40} == {"avg@8"}
    assert set(suites()) >= {"in-domain", "ood", "all", "smoke", "olympiad", "robustness"}


def test_every_builtin_task_has_a_licence_and_a_source() -> None:
    for task in builtin_tasks().values():
        assert task.licence and task.source, task.name
        assert get_task(task.name) is task
