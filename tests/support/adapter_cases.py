"""Responses for the adapters of other programs, with the rewards that they must get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple


class AdapterCase(NamedTuple):
    """A response to a problem, and its reward."""

    question: str
    gold: str
    response: str
    reward: float | None  #: None if the grader leaves the answer undecided.

    @property
    def score(self) -> float:
        """The number for programs that need one."""
        return self.reward or 0.0


#: The questions are different, because a scripted model finds its response by the question.
CASES = [
    AdapterCase("What is 1/2 + 1/4?", "3/4", r"It is \boxed{0.75}.", 1.0),
    AdapterCase("What is 6 times 7?", "6 times 7 is 42.\n#### 42", "So it is 42.", 1.0),
    AdapterCase("What is 1 + 1?", "2", r"<think>It is \boxed{2}.</think>\boxed{3}", 0.0),
    AdapterCase("What is 2 + 2?", "4", "I do not know.", 0.0),
    AdapterCase("What is 40 + 2?", "42", r"\boxed{42 \star 3}", None),
]


def write_problems(path: Path) -> None:
    """Write the problems of the cases as rows with ``question`` and ``answer``."""
    rows = [json.dumps({"question": case.question, "answer": case.gold}) for case in CASES]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def response_to(text: str) -> str:
    """Return the response to the question in a text."""
    (response,) = [case.response for case in CASES if case.question in text]
    return response
