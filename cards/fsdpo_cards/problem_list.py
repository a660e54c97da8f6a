"""Select the problems and solutions for the list of a page, within a budget of bytes.

A run over nine benchmarks has hundreds of megabytes of text, and a dataset has more. A page prefers
the solutions that decoders chose or that preference pairs use, and states the number of omitted
solutions.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fsdpo_cards.formulas import FORMULA_PATTERN, formula_trees

DEFAULT_BUDGET_BYTES = 16_000_000  #: Bytes of text in a page.
#: Bytes of the smallest useful problem. If the budget has less per problem, the page skips
#: problems.
MIN_PROBLEM_BYTES = 2_500
MAX_TEXT_CHARS = 6_000  #: Characters of one question, prompt or solution; longer texts are cut.
_STEP_OVERHEAD_BYTES = 200  #: Bytes of a solution besides its steps.


class Mark(NamedTuple):
    """The look of a verdict in the list."""

    style: str  #: CSS class.
    symbol: str  #: Symbol in front of the problem.
    label: str  #: Name of the verdict in the counts.


Marks = Mapping[str, Mark]  #: Marks by verdict, in the order of the counts.

_WRONG = Mark("wrong", "✗", "wrong")
OUTCOME_MARKS: Marks = {
    "correct": Mark("right", "✓", "correct"),
    **dict.fromkeys(("incorrect", "no_answer", "timed_out"), _WRONG),
    "undecided": Mark("none", "?", "undecided"),
    **dict.fromkeys(("gold_unparsed", "ungraded"), Mark("none", "–", "not counted")),
}


@dataclass(slots=True)
class ProblemList:
    """The problems of a page, with the texts that fit into the budget."""

    marks: Marks  #: The marks of all verdicts that can occur.
    total_problems: int  #: Problems of the run or the dataset.
    budget_bytes: int = DEFAULT_BUDGET_BYTES  #: Bytes of text in the page.
    problems: list[dict[str, Any]] = field(default_factory=list)  #: Entries for the page's script.
    solutions_left_out: int = 0  #: Solutions of these problems that the page omits.
    #: The indices of texts that many problems share.
    _shared_texts: dict[str, int] = field(default_factory=dict)

    @property
    def stride(self) -> int:
        """Distance between shown problems: with a stride of n, the page shows every n-th."""
        return max(1, _divide_up(self.total_problems * MIN_PROBLEM_BYTES, self.budget_bytes))

    @property
    def bytes_per_problem(self) -> int:
        """Bytes of text for each shown problem."""
        return self.budget_bytes // max(1, _divide_up(self.total_problems, self.stride))

    @property
    def left_out(self) -> str:
        """The numbers of omitted problems and solutions in words; empty if there are none."""
        parts = []
        if self.total_problems > len(self.problems):
            parts.append(
                f"{self.total_problems - len(self.problems):,} of {self.total_problems:,} problems"
            )
        if self.solutions_left_out:
            parts.append(f"{self.solutions_left_out:,} solutions of the shown problems")
        return " and ".join(parts)

    @property
    def page_data(self) -> dict[str, Any]:
        """JSON data for the page's script; formulas get at most as many bytes as the texts."""
        solutions = [solution for problem in self.problems for solution in problem["solutions"]]
        texts = [problem["question"] for problem in self.problems]
        texts += [step for solution in solutions for step in solution["steps"]]
        answers = [problem["gold"] for problem in self.problems]
        answers += [solution["answer"] for solution in solutions if solution["answer"] is not None]
        return {
            "problems": self.problems,
            "shared": list(self._shared_texts),
            "marks": self.marks,
            "formulas": formula_trees(texts, answers, self.budget_bytes),
            "pattern": FORMULA_PATTERN,
        }

    def question_entry(self, question: str, gold: str, prompt: str) -> dict[str, Any]:
        """Return question, gold answer and prompt of a problem.

        The prompt consists of the indices of shared texts, with the question between them.
        """
        prompt_parts = prompt.split(question, 1) if question else [prompt]
        max_question_chars = min(MAX_TEXT_CHARS, self.bytes_per_problem // 4)
        max_other_chars = min(MAX_TEXT_CHARS, self.bytes_per_problem // 8)
        return {
            "question": shorten(question, max_question_chars),
            "gold": shorten(gold, max_other_chars),
            "prompt": [self._share_text(shorten(part, max_other_chars)) for part in prompt_parts],
        }

    def add_problem(
        self,
        problem: dict[str, Any],
        solutions: Sequence[Mapping[str, Any]],
        choosers: Iterable[dict[str, Any]],
    ) -> None:
        """Add a problem with as many solutions as fit; the first always fits.

        Args:
            problem: The problem's entry.
            solutions: Its solutions, with at least ``name``, ``steps``, ``rewards``, ``answer`` and
                ``why``.
            choosers: The entries of decoders or pairs in the problem. The solutions in their
                ``taken`` come first. Indices in ``taken`` become indices on the page, or None for
                omitted solutions.
        """
        free_bytes = self.bytes_per_problem - _json_size(problem)
        choosers = list(choosers)
        chosen_first = [index for chooser in choosers for index in chooser["taken"]]
        page_solutions: list[int] = []
        for index in dict.fromkeys([*chosen_first, *range(len(solutions))]):
            steps_size = min(_json_size(solutions[index]["steps"]), 2 * MAX_TEXT_CHARS)
            required_bytes = steps_size + _STEP_OVERHEAD_BYTES
            if not page_solutions or required_bytes <= free_bytes:
                page_solutions.append(index)
                free_bytes -= required_bytes
        self.solutions_left_out += len(solutions) - len(page_solutions)
        page_solutions.sort()
        page_index = {index: position for position, index in enumerate(page_solutions)}
        for chooser in choosers:
            chooser["taken"] = [page_index.get(index) for index in chooser["taken"]]
        entries = [self._shorten_solution(solutions[index]) for index in page_solutions]
        self.problems.append(problem | {"solutions": entries})

    def _shorten_solution(self, solution: Mapping[str, Any]) -> dict[str, Any]:
        steps = solution["steps"]
        rewards = solution["rewards"]
        answer = solution["answer"]
        max_chars = max(800, min(MAX_TEXT_CHARS, self.bytes_per_problem // 2))
        page_steps = list(_cut_steps(steps, max_chars))
        return {
            **solution,
            "steps": page_steps,
            "hidden": sum(map(len, steps)) - sum(map(len, page_steps)),
            "rewards": None if rewards is None else [round(reward, 3) for reward in rewards],
            "answer": answer and shorten(answer),
            "why": self._share_text(solution["why"]),
        }

    def _share_text(self, text: str) -> int:
        """Return the index of a shared text."""
        return self._shared_texts.setdefault(text, len(self._shared_texts))


def _divide_up(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def _cut_steps(steps: Iterable[str], max_chars: int) -> Iterator[str]:
    """Yield the first ``max_chars`` characters of the steps, step by step."""
    for step in steps:
        if max_chars <= 0:
            return
        yield step[:max_chars]
        max_chars -= len(step)


def shorten(text: str, max_chars: int = 300) -> str:
    """Cut a text after ``max_chars`` characters, and append the number of missing characters."""
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]} … ({len(text) - max_chars:,} more characters)"


def _json_size(value: Any) -> int:
    return len(json.dumps(value))
