"""Benchmarks that only the Hub has, as files: their layout, with made-up problems."""

from __future__ import annotations

import json
from pathlib import Path

#: Golds of Omni-MATH: what a program can score, and a sentence, which is left out.
OMNI = ["10", "$x=\\pm\\sqrt{2}$", "\\frac{1}{2}", "All linear functions of slope at most one"]


def save_hub_only(folder: Path) -> Path:
    """Write 50 instances of 100 templates for GSM-Symbolic, and some 30 of Omni-MATH."""
    templates = [
        {
            "id": template,
            "instance": instance,
            "question": f"Ann has {template} apples and buys {instance} more. How many has she?",
            "answer": f"She has {template} + {instance}.\n#### {template + instance}",
            "original_id": template,
            "original_question": "Ann has 3 apples and buys 4 more. How many has she?",
            "original_answer": "3 + 4 = 7.\n#### 7",
        }
        for instance in range(50)
        for template in range(100)
    ]
    olympic = [
        {
            "domain": ["Mathematics -> Algebra"],
            "difficulty": 4.0 + number % 3,
            "problem": f"Problem {number}.",
            "solution": "…",
            "answer": OMNI[number % 4],
            "source": "made up",
        }
        for number in range(40)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("gsm_symbolic", templates), ("omni_math", olympic)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder
