"""Compare verdicts with the scorers of the benchmarks; docs/harnesses.md discusses differences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fsdpo_bench.tasks.load import load_task
from fsdpo_bench.tasks.table import builtin_tasks
from verdicts import grade_requests

from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.extraction.boxes import last_box_content
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.stages.verdicts import grading_request

#: ``eval/scoring_examples.json`` of OpenBMB/OlympiadBench at ba5b26a7 (MIT): expected verdicts for
#: pairs of gold and answer, including physics.
EXAMPLES = Path(__file__).parents[2] / "data/olympiadbench_scoring_examples.json"
#: Pairs on which our verdict is wrong: function names and products of physical symbols.
OLYMPIAD = [
    ("\\Phi (x,y)=\\frac{x+1}{2y}", "\\Phi (x,    y)=\\frac{x}{2y} + \\frac{1}{2y}"),
    ("(\\frac{\\sqrt{2}v^2_0}{g}-", "(\\frac{v^2_0 \\sqrt{2}}{g}-"),
    ("\\Delta p\\approx -\\frac{\\hbar \\omega_{L}}{c}", "-\\frac{\\omega_{L} \\hbar}{c}"),
]
#: Problems of MATH-Perturb whose simple and hard forms have the same answer.
EQUAL_ANSWER_IDS = {245, 626, 733, 1215, 1698, 2179, 2195, 2667, 2673}


def test_verdicts_on_the_scoring_examples_of_olympiadbench() -> None:
    """Examples with an absolute precision are skipped; task notes cover the only maths problem."""
    pairs = []
    equal = []
    for example in json.loads(EXAMPLES.read_text()):
        gold = (last_box_content(example["GT"]) or example["GT"]).replace("$", "")
        for answer_entry in example["Ans"]:
            if "precision" not in answer_entry:
                answer = answer_entry["answer"]
                pairs.append((gold, answer if "boxed" in answer else f"$\\boxed{{{answer}}}$"))
                equal.append(answer_entry["equal"])
    our_verdicts = [
        verdict.status == "correct"
        for verdict in MathGrader().grade([GradingRequest(*pair) for pair in pairs])
    ]
    differing = [
        pair
        for pair, ours, theirs in zip(pairs, our_verdicts, equal, strict=True)
        if ours != theirs
    ]
    assert len(pairs) == 31 and len(differing) == len(OLYMPIAD)
    for (gold, answer), (gold_begins, answer_begins) in zip(differing, OLYMPIAD, strict=True):
        assert gold.startswith(gold_begins) and answer_begins in answer


@pytest.mark.parametrize(("name", "other"), [("simple", "hard"), ("hard", "simple")])
def test_verdicts_equal_the_evaluation_of_math_perturb(shared: Path, name: str, other: str) -> None:
    """Grade the gold, the gold of the other form, the gold plus one, and the gold as a float.

    Its ``evaluate.py`` at df4840f6 gives the same verdict for all 1,806 answers but two. It accepts
    -1 for -100 and -100 for -1, because it treats them as percentages.
    """
    loaded_task, other_task = (
        load_task(builtin_tasks()[f"math_perturb_{form}"], shared / "data/newer/benchmarks")
        for form in (name, other)
    )
    other_golds = {
        problem.metadata["problem_id"]: problem.answer for problem in other_task.problems
    }
    items = []
    expected = []
    for problem in loaded_task.problems:
        number = problem.metadata["problem_id"]
        expected_by_answer = {
            problem.answer: True,
            other_golds[number]: number in EQUAL_ANSWER_IDS - {2667},
        }
        if problem.answer.lstrip("-").isdecimal():
            expected_by_answer |= {str(int(problem.answer) + 1): False, f"{problem.answer}.0": True}
        expected_by_answer[problem.answer] = True
        items += [(problem, f"$\\boxed{{{text}}}$") for text in expected_by_answer]
        expected += expected_by_answer.values()
    verdicts = grade_requests([grading_request(*item) for item in items], workers=1)
    our_verdicts = [verdict.status == "correct" for verdict in verdicts]
    differing = [
        (problem.answer, text)
        for (problem, text), ours, theirs in zip(items, our_verdicts, expected, strict=True)
        if ours != theirs
    ]
    assert differing == [] and len(items) > 800
