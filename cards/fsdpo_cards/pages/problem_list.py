"""Problems and solutions for the list of a page, within a budget of bytes.

A run over nine benchmarks holds hundreds of megabytes of text, a dataset more. A page keeps what a
reader asks for first (the solutions that decoders chose, those that stand in pairs), and says what
it leaves out.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fsdpo_cards.pages.formulas import PATTERN, formula_trees

BUDGET = 16_000_000  #: Bytes of text in a page.
#: Bytes that a problem needs to be worth showing; with more problems, only some are shown.
MIN_PROBLEM_BYTES = 2_500
MAX_TEXT_CHARS = 6_000  #: Characters of one question, prompt or solution; the rest is cut.

#: By verdict, in the order of their counts: the style of its mark, the mark, and what it is called.
Marks = Mapping[str, tuple[str, str, str]]

_WRONG = ("wrong", "✗", "wrong")
OUTCOMES: Marks = {
    "correct": ("right", "✓", "correct"),
    **dict.fromkeys(("incorrect", "no_answer", "timed_out"), _WRONG),
    "gold_unparsed": ("none", "–", "not counted"),
}


@dataclass(slots=True)
class ProblemList:
    """What the list shows, of so many problems."""

    marks: Marks
    total_problems: int
    budget: int = BUDGET
    problems: list[dict[str, Any]] = field(default_factory=list)  #: As the page's script has them.
    solutions_left_out: int = 0
    #: Texts that many problems have in common, and their numbers.
    _shared: dict[str, int] = field(default_factory=dict)

    @property
    def stride(self) -> int:
        """One of how many problems there is room for."""
        return max(1, -(-self.total_problems * MIN_PROBLEM_BYTES // self.budget))

    @property
    def room(self) -> int:
        """Bytes for each problem."""
        return self.budget // max(1, -(-self.total_problems // self.stride))

    @property
    def left_out(self) -> str:
        """What is not there, in words; empty if everything is."""
        parts = []
        if self.total_problems > len(self.problems):
            parts.append(
                f"{self.total_problems - len(self.problems):,} of {self.total_problems:,} problems"
            )
        if self.solutions_left_out:
            parts.append(f"{self.solutions_left_out:,} solutions of the shown problems")
        return " and ".join(parts)

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script works on; formulas get as many bytes as the texts at most."""
        solutions = [each for problem in self.problems for each in problem["solutions"]]
        texts = [problem["question"] for problem in self.problems]
        texts += [step for each in solutions for step in each["steps"]]
        answers = [problem["gold"] for problem in self.problems]
        answers += [each["answer"] for each in solutions if each["answer"] is not None]
        told = {"problems": self.problems, "shared": list(self._shared), "marks": self.marks}
        return {**told, "formulas": formula_trees(texts, answers, self.budget), "pattern": PATTERN}

    def question_entry(self, question: str, gold: str, prompt: str) -> dict[str, Any]:
        """Return what was asked; of prompts, what is around the questions is kept once for all."""
        around = prompt.split(question, 1) if question else [prompt]
        return {
            "question": shorten(question, min(MAX_TEXT_CHARS, self.room // 4)),
            "gold": shorten(gold, min(MAX_TEXT_CHARS, self.room // 8)),
            "prompt": [
                self._share(shorten(each, min(MAX_TEXT_CHARS, self.room // 8))) for each in around
            ],
        }

    def add(
        self,
        problem: dict[str, Any],
        solutions: Sequence[Mapping[str, Any]],
        takers: Iterable[dict[str, Any]],
    ) -> None:
        """Add a problem with those of its solutions that there is room for.

        A solution has ``name``, ``steps``, ``rewards``, ``answer`` and ``why``, besides what else
        is to be shown. The ``taken`` of ``takers``, parts of the problem, are numbers of solutions
        that come before others; they become their places on the page, None for what is not there.
        """
        room, takers = self.room - _size(problem), list(takers)
        first = [index for each in takers for index in each["taken"]]
        kept: list[int] = []
        for index in dict.fromkeys([*first, *range(len(solutions))]):
            needed = min(_size(solutions[index]["steps"]), 2 * MAX_TEXT_CHARS) + 200
            if not kept or needed <= room:
                kept.append(index)
                room -= needed
        self.solutions_left_out += len(solutions) - len(kept)
        places = {index: place for place, index in enumerate(sorted(kept))}
        for each in takers:
            each["taken"] = [places.get(index) for index in each["taken"]]
        self.problems.append(
            problem | {"solutions": [self._shorten_solution(solutions[index]) for index in places]}
        )

    def _shorten_solution(self, solution: Mapping[str, Any]) -> dict[str, Any]:
        steps, rewards, answer = (solution[name] for name in ("steps", "rewards", "answer"))
        shown = list(_cut_steps(steps, max(800, min(MAX_TEXT_CHARS, self.room // 2))))
        return {
            **solution,
            "steps": shown,
            "hidden": sum(map(len, steps)) - sum(map(len, shown)),
            "rewards": None if rewards is None else [round(reward, 3) for reward in rewards],
            "answer": answer and shorten(answer),
            "why": self._share(solution["why"]),
        }

    def _share(self, text: str) -> int:
        return self._shared.setdefault(text, len(self._shared))


def _cut_steps(steps: Iterable[str], most: int) -> Iterator[str]:
    for step in steps:
        if most <= 0:
            return
        yield step[:most]
        most -= len(step)


def shorten(text: str, most: int = 300) -> str:
    """Return a text that is no longer, and says how much longer it was."""
    if len(text) <= most:
        return text
    return f"{text[:most]} … ({len(text) - most:,} more characters)"


def _size(value: Any) -> int:
    return len(json.dumps(value))
