"""Grade a file of answers: ``python examples/grade_answers.py [answers.jsonl]``.

Each line holds ``gold`` and ``response``; without a file, a few lines of our own are graded.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import fsdpo_data as fd

ANSWERS = [
    {"gold": "1/2", "response": r"Half of them, so \boxed{0.5}"},
    {"gold": r"[2,\infty)", "response": r"The answer is $x \ge 2$."},
    {"gold": "42", "response": "It must be 41."},
    {"gold": "7", "response": ""},
]


rows = map(json.loads, Path(sys.argv[1]).read_text().splitlines()) if sys.argv[1:] else ANSWERS
outcomes = Counter[str]()
for row in rows:
    verdict = fd.grade(row["gold"], row["response"])
    print(f"{verdict.status:<10} {row['gold']:<12} {verdict.answer}  ({verdict.rule})")
    outcomes[verdict.status] += 1
print(dict(outcomes))
