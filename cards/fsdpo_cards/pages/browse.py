"""Problems and solutions for the list of a page, within a budget of bytes.

A run over nine benchmarks holds hundreds of megabytes of text, a dataset more. A page keeps what a
reader asks for first (the solutions that decoders chose, those that stand in pairs), and says what
it leaves out.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BUDGET = 16_000_000  #: Bytes of text in a page.
#: Bytes that a problem needs to be worth showing; with more problems, only some are shown.
LEAST = 2_500
LONGEST = 6_000  #: Characters of one question, prompt or solution; the rest is cut.

#: By verdict, in the order of their counts: the style of its mark, the mark, and what it is called.
Marks = Mapping[str, tuple[str, str, str]]

_WRONG = ("wrong", "✗", "wrong")
OUTCOMES: Marks = {
    "correct": ("right", "✓", "correct"),
    **dict.fromkeys(("incorrect", "no_answer", "timed_out"), _WRONG),
    "gold_unparsed": ("none", "–", "not counted"),
}


@dataclass(slots=True)
class Browsable:
    """What the list shows."""

    marks: Marks
    of: int  #: Problems that there are.
    budget: int = BUDGET
    problems: list[dict[str, Any]] = field(default_factory=list)  #: As the page's script has them.
    explanations: dict[str, str] = field(default_factory=dict)  #: Why, by status and rule.
    solutions_left_out: int = 0
    _frames: dict[tuple[str | None, ...], int] = field(default_factory=dict)

    @property
    def stride(self) -> int:
        """One of how many problems there is room for."""
        return max(1, -(-self.of * LEAST // self.budget))

    @property
    def room(self) -> int:
        """Bytes for each problem."""
        return self.budget // max(1, -(-self.of // self.stride))

    @property
    def left_out(self) -> str:
        """What is not there, in words; empty if everything is."""
        parts = []
        if self.of > len(self.problems):
            parts.append(f"{self.of - len(self.problems):,} of {self.of:,} problems")
        if self.solutions_left_out:
            parts.append(f"{self.solutions_left_out:,} solutions of the shown problems")
        return " and ".join(parts)

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script works on."""
        told = {"problems": self.problems, "explanations": self.explanations}
        return {**told, "marks": self.marks, "prompts": list(map(list, self._frames))}

    def asked(self, question: str, gold: str, prompt: str) -> dict[str, Any]:
        """Return what was asked; of prompts, what is around the questions is kept once for all."""
        around = prompt.split(question, 1) if question else [prompt]
        frame = tuple(cut(part, min(LONGEST, self.room // 8)) for part in around)
        return {
            "question": cut(question, min(LONGEST, self.room // 4)),
            "gold": cut(gold, min(LONGEST, self.room // 8)),
            "prompt": self._frames.setdefault(frame, len(self._frames)),
        }

    def solution(
        self, name: str, steps: Iterable[str], rewards: Sequence[float] | None, **told: Any
    ) -> dict[str, Any]:
        """Return a solution for the page; ``told`` is what else its box says."""
        steps = list(steps)
        shown = list(_cut_steps(steps, max(800, min(LONGEST, self.room // 2))))
        return {
            "name": name,
            "steps": shown,
            "rewards": None if rewards is None else [round(reward, 3) for reward in rewards],
            "hidden": sum(map(len, steps)) - sum(map(len, shown)),
            **told,
        }

    def fitting(
        self, solutions: Sequence[Sequence[str]], first: Iterable[int], taken: int
    ) -> dict[int, int]:
        """Return {index: place} of the solutions of a problem that fit, ``first`` before others.

        ``solutions`` are their steps, ``taken`` the bytes of the problem itself.
        """
        room = self.room - taken
        order = list(dict.fromkeys([*first, *range(len(solutions))]))
        kept: list[int] = []
        for index in order:
            needed = min(size(solutions[index]), 2 * LONGEST) + 200
            if kept and needed > room:
                continue
            kept.append(index)
            room -= needed
        self.solutions_left_out += len(order) - len(kept)
        return {index: place for place, index in enumerate(sorted(kept))}


def _cut_steps(steps: Iterable[str], most: int) -> Iterator[str]:
    for step in steps:
        if most <= 0:
            return
        yield step[:most]
        most -= len(step)


def cut(text: str | None, most: int) -> str | None:
    """Return a text that is no longer, and says how much longer it was."""
    if text is None or len(text) <= most:
        return text
    return f"{text[:most]} … ({len(text) - most:,} more characters)"


def size(value: Any) -> int:
    """Return the bytes that a page takes for a value."""
    return len(json.dumps(value))
