"""Our verdicts against those of benchmarks' own scorers; docs/benchmarks.md says who is right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fsdpo_bench.tasks.grade import TaskResponse, grade_task_responses
from fsdpo_bench.tasks.load import load_task
from fsdpo_bench.tasks.table import builtin_tasks

from fsdpo_data.answers.extraction.boxes import last_box_content
from fsdpo_data.answers.grader import MathGrader

#: ``eval/scoring_examples.json`` of OpenBMB/OlympiadBench at ba5b26a7 (MIT): what its judge is to
#: say of answers to golds, physics among them.
EXAMPLES = Path(__file__).parents[1] / "data/olympiadbench_scoring_examples.json"
#: Where ours is another verdict, and wrong: names of functions, products of a physicist's letters.
OLYMPIAD = [
    ("\\Phi (x,y)=\\frac{x+1}{2y}", "\\Phi (x,    y)=\\frac{x}{2y} + \\frac{1}{2y}"),
    ("(\\frac{\\sqrt{2}v^2_0}{g}-", "(\\frac{v^2_0 \\sqrt{2}}{g}-"),
    ("\\Delta p\\approx -\\frac{\\hbar \\omega_{L}}{c}", "-\\frac{\\omega_{L} \\hbar}{c}"),
]
#: Problems of MATH-Perturb whose easy and hard form have the same answer.
SAME = {245, 626, 733, 1215, 1698, 2179, 2195, 2667, 2673}


def test_olympiadbenchs_examples() -> None:
    """Those with an absolute precision aside: of its maths one problem has one, which is noted."""
    pairs, equal = [], []
    for each in json.loads(EXAMPLES.read_text()):
        gold = (last_box_content(each["GT"]) or each["GT"]).replace("$", "")
        for told in each["Ans"]:
            if "precision" not in told:
                said = told["answer"]
                pairs.append((gold, said if "boxed" in said else f"$\\boxed{{{said}}}$"))
                equal.append(told["equal"])
    found = [verdict.status == "correct" for verdict in MathGrader().grade(pairs)]
    differing = [
        pair for pair, ours, theirs in zip(pairs, found, equal, strict=True) if ours != theirs
    ]
    assert len(pairs) == 31 and len(differing) == len(OLYMPIAD)
    for (gold, said), (gold_begins, answer_begins) in zip(differing, OLYMPIAD, strict=True):
        assert gold.startswith(gold_begins) and answer_begins in said


@pytest.mark.parametrize(("name", "other"), [("simple", "hard"), ("hard", "simple")])
def test_math_perturbs_evaluation(shared: Path, name: str, other: str) -> None:
    """The gold, the gold of the other form, one more, and the gold as a float.

    Its ``evaluate.py`` at df4840f6 says the same of all 1,806 but two: it takes -1 for -100, and
    -100 for -1, as percentages of which nothing is said.
    """
    whole, theirs = (
        load_task(builtin_tasks()[f"math_perturb_{each}"], shared / "data/newer/benchmarks")
        for each in (name, other)
    )
    others = {each.metadata["problem_id"]: each.answer for each in theirs.problems}
    items, expected = [], []
    for problem in whole.problems:
        number = problem.metadata["problem_id"]
        said = {problem.answer: True, others[number]: number in SAME - {2667}}
        if problem.answer.lstrip("-").isdecimal():
            said |= {str(int(problem.answer) + 1): False, f"{problem.answer}.0": True}
        said[problem.answer] = True
        items += [(problem, f"$\\boxed{{{text}}}$") for text in said]
        expected += said.values()
    responses = [TaskResponse(problem, text) for problem, text in items]
    found = [
        each.verdict.status == "correct" for each in grade_task_responses(whole.task, responses, 1)
    ]
    differing = [
        (problem.answer, text)
        for (problem, text), ours, theirs in zip(items, found, expected, strict=True)
        if ours != theirs
    ]
    assert differing == [] and len(items) > 800
