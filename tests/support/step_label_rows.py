"""Rows with step labels, as other tools write them."""

from __future__ import annotations

from typing import Any


def dialogue(*turns: str, name: str = "conversations") -> dict[str, Any]:
    roles = ("user", "assistant")
    return {name: [{"role": roles[k % 2], "content": turn} for k, turn in enumerate(turns)]}


def tree(text: str, value: float, *children: dict[str, Any]) -> dict[str, Any]:
    return {"text": text, "mc_value": value, "children": list(children)}


MARKED = "2+2? Step 1: 2+2=4 ки\nStep 2: So 5. ки"
APS = {"question": "2+2?", "final_answer": "4"}
YES, NO = (f"<analyze>\\boxed{{4}}</analyze> $\\boxed{{{word}}}$" for word in ("Yes", "No"))

#: A row as each maker writes it, and what it says: problem, steps and labels of its solutions.
MADE_UP: list[tuple[str, dict[str, Any], list[tuple[str, list[str], list[Any]]]]] = [
    (
        "rlhflow",
        dialogue("2+2? Step 1: 2+2=4", "+", "Step 2: So 5.", "-"),
        [("2+2?", ["Step 1: 2+2=4", "Step 2: So 5."], [True, False])],
    ),
    # Question and first step cannot be told apart: they are the prompt.
    (
        "rlhflow",
        dialogue("2+2? It is even.", "+", "So 5.", "-", name="messages"),
        [("2+2? It is even.", ["So 5."], [False])],
    ),
    (
        "openr",
        {"question": "2+2?", "process": MARKED[5:], "labels": [1, 0]},
        [("2+2?", ["Step 1: 2+2=4", "Step 2: So 5."], [True, False])],
    ),
    (
        "openr",
        {"question": "2+2?", "process": "a \n\n\n\n\nb \n\n\n\n\n", "label": ["+", "-"]},
        [("2+2?", ["a", "b"], [True, False])],
    ),
    (
        "math-aps",
        {**APS, "reasoning_steps": tree("2+2?", 0.5, tree("a", 0.75, tree("b", 1), tree("c", 0)))},
        [("2+2?", ["a", "b"], [0.75, True]), ("2+2?", ["a", "c"], [0.75, False])],
    ),
    (
        "math-aps",
        {
            **APS,
            "reasoning_steps": [
                {"solution_prefix": text, "mc_value": value}
                for text, value in (("2+2?", 0.5), ("2+2?\n\na c", 0.0), ("2+2?\n\na", 0.75))
            ],
        },
        [("2+2?", ["a", " c"], [0.75, 0.0])],
    ),
    # 0 is wrong in a chain, which ends there, and right in the place of a step.
    (
        "versaprm",
        {
            "question": "2+2?",
            "chain_of_thoughts": [
                {
                    "steps": ["a", "b", "c"],
                    "labels": [1, 0, 1],
                    "augs": [
                        {"aug_step": "x", "aug_idx": 1, "aug_type": 0},
                        {"aug_step": "y", "aug_idx": 0, "aug_type": -1},
                        {"aug_step": "z", "aug_idx": 2, "aug_type": 1},
                    ],
                },
                {"steps": ["d"], "labels": [None], "augs": []},
            ],
        },
        [
            ("2+2?", ["a", "b"], [True, False]),
            ("2+2?", ["a", "x"], [True, True]),
            ("2+2?", ["y"], [False]),
        ],
    ),
    (
        "prmbench",
        {
            "question": "not this",
            "modified_question": "2+2?",
            "original_process": ["a", "b"],
            "modified_process": ["a", "b", "c"],
            "error_steps": [2],
        },
        [("2+2?", ["a", "b", "c"], [True, False, True])],
    ),
    (
        "er-prm",
        {"text": MARKED, "value": [0.9, 0.1]},
        [("2+2?", ["Step 1: 2+2=4", "Step 2: So 5."], [0.9, 0.1])],
    ),
    (
        "pddl2prm",
        {
            "text": "Problem: Stack.\nSteps:\nStep 1: Pick.\nки\nStep 2: Put.\nки",
            "value": [0.4, 1.0],
        },
        [("Stack.", ["Step 1: Pick.", "Step 2: Put."], [0.4, 1.0])],
    ),
    (
        "genprm",
        dialogue("Question: 2\n\n+2?\n\na", YES, "b", NO, "c", "", name="messages"),
        [("2\n\n+2?", ["a", "b"], [True, False])],
    ),
    # What comes after the first wrong step has labels of its own, which are not verified.
    (
        "thinkprm",
        {"problem": "2+2?", "prefix": "a\nb\n\nc", "traj_gt_labels": ["+", "-", "+"]},
        [("2+2?", ["a", "b"], [True, False])],
    ),
    (  # a step with a marker has several lines
        "thinkprm",
        {
            "problem": "2+2?",
            "prefix": "Step 1: a\n= b\nStep 2: c\nStep 3: d",
            "traj_gt_labels": ["+", "-"],
        },
        [("2+2?", ["Step 1: a\n= b", "Step 2: c"], [True, False])],
    ),
    (
        "thinkprm",
        {"problem": "2+2?", "prefix": "a\nb", "traj_gt_labels": [1, 1]},
        [("2+2?", ["a", "b"], [True, True])],
    ),
    (
        "verify-then-generate",
        {
            "problem": "2+2?",
            "reference_solution": "2+2=4\n 4",
            "student_incorrect_solution": ["a", "b", " 5"],
            "incorrect_index": 1,
        },
        [("2+2?", ["a", "b"], [True, False])],
    ),
    (
        "bigbench-mistake",
        {"input": "2+2?", "steps": ["a", "b"], "target": "4", "answer": "5", "mistake_index": 0},
        [("2+2?", ["a"], [False])],
    ),
    (
        "bigbench-mistake",
        {"input": "2+2?", "steps": ["a", "b"], "target": "4", "mistake_index": None},
        [("2+2?", ["a", "b"], [True, True])],
    ),
]
