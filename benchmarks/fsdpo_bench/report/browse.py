"""Problems and solutions for the report's browser, within a budget of bytes.

A run over nine benchmarks holds hundreds of megabytes of text. The report keeps what a reader asks
for first (the solutions that decoders chose), and says what it leaves out.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from fsdpo_bench.results.outcomes import Record, groups_of, tokens_of
from fsdpo_data.core.tables import read_table

BUDGET = 16_000_000  #: Bytes of text in a report.
#: Bytes that a problem needs to be worth showing; with more problems, only every n-th is shown.
LEAST = 2_500
LONGEST = 6_000  #: Characters of one question, prompt or solution; the rest is cut.

_WORDS = read_table(Path(__file__).with_name("explain"))


@dataclass(slots=True)
class Browsable:
    """What the browser shows."""

    problems: list[dict[str, Any]] = field(default_factory=list)  #: As the page's script has them.
    explanations: dict[str, str] = field(default_factory=dict)  #: Why, by status and rule.
    of: int = 0
    solutions_left_out: int = 0

    @property
    def left_out(self) -> str:
        """What is not there, in words; empty if everything is."""
        parts = []
        if self.of > len(self.problems):
            parts.append(f"{self.of - len(self.problems):,} of {self.of:,} problems")
        if self.solutions_left_out:
            parts.append(f"{self.solutions_left_out:,} solutions of the shown problems")
        return " and ".join(parts)


def browsable(records: Iterable[Record], total: int, budget: int = BUDGET) -> Browsable:
    """Choose what the browser shows."""
    stride = max(1, -(-total * LEAST // budget))
    room = budget // max(1, -(-total // stride))
    shown = Browsable(of=total)
    for record in islice(records, 0, None, stride):
        problem, left_out = _problem(record, room)
        shown.problems.append(problem)
        shown.solutions_left_out += left_out
        for each in (*problem["decoded"].values(), *problem["solutions"]):
            told = (each["status"], each["rule"])
            shown.explanations.setdefault(" ".join(told), explain(*told))
    return shown


def _problem(record: Record, room: int) -> tuple[dict[str, Any], int]:
    """Return a problem for the page, and how many of its solutions there was no room for."""
    metadata = record["metadata"]
    problem: dict[str, Any] = {
        "task": record["task"],
        "id": record["problem_id"],
        "question": _cut(record["question"], min(LONGEST, room // 4)),
        "gold": _cut(record["gold"], min(LONGEST, room // 8)),
        **groups_of(metadata),
    }
    solutions, decoded = _solutions(record)
    kept, left_out = _fit(solutions, decoded, room - _size(problem) - _size(decoded))
    for each in decoded.values():
        each["solution"] = kept.get(each["solution"])
    problem["decoded"] = decoded
    problem["solutions"] = [_solution(*solutions[index], room) for index in kept]
    return problem, left_out


def _solutions(record: Record) -> tuple[list[tuple[str, Record]], dict[str, dict[str, Any]]]:
    """Return all solutions with their names, and by decoder which of them it chose."""
    solutions = [(f"sample {i + 1}", each) for i, each in enumerate(record["samples"])]
    decoded = {}
    for name, each in record["decoded"].items():
        chosen = each.get("sample")
        if each.get("solution"):
            chosen = len(solutions)
            solutions.append((name, each["solution"]))
        decoded[name] = {
            "status": each["status"],
            "rule": each["rule"],
            "answer": _cut(each["answer"], 300),
            "solution": chosen,
        }
    return solutions, decoded


def _fit(
    solutions: list[tuple[str, Record]], decoded: Mapping[str, Mapping[str, Any]], room: int
) -> tuple[dict[int, int], int]:
    """Return {index: place} of the solutions that fit, chosen ones first, and how many do not."""
    chosen = [each["solution"] for each in decoded.values() if each["solution"] is not None]
    order = list(dict.fromkeys([*chosen, *range(len(solutions))]))
    kept: list[int] = []
    for index in order:
        needed = min(_size(solutions[index][1]["steps"]), 2 * LONGEST) + 200
        if kept and needed > room:
            continue
        kept.append(index)
        room -= needed
    return {index: place for place, index in enumerate(sorted(kept))}, len(order) - len(kept)


def _solution(name: str, solution: Record, room: int) -> dict[str, Any]:
    steps = list(_cut_steps(solution["steps"], max(800, min(LONGEST, room // 2))))
    rewards = solution["rewards"]
    return {
        "name": name,
        "steps": steps,
        "rewards": None if rewards is None else [round(reward, 3) for reward in rewards],
        "hidden": len(solution["text"]) - sum(map(len, steps)),
        "answer": _cut(solution["answer"], 300),
        "status": solution["status"],
        "rule": solution["rule"],
        "tokens": tokens_of(solution),
        "finish": solution["finish_reason"],
    }


def _cut_steps(steps: Iterable[str], most: int) -> Iterator[str]:
    for step in steps:
        if most <= 0:
            return
        yield step[:most]
        most -= len(step)


def _cut(text: str | None, most: int) -> str | None:
    if text is None or len(text) <= most:
        return text
    return f"{text[:most]} … ({len(text) - most:,} more characters)"


def _size(value: Any) -> int:
    return len(json.dumps(value))


def explain(status: str, rule: str) -> str:
    """Explain a verdict by its status and rule, e.g. ``correct`` and ``boxed/number``."""
    extraction, _, comparison = rule.partition("/")
    if status == "gold_unparsed":
        return "The gold answer is empty or unreadable, so the problem does not count."
    if status == "no_answer":
        return "No answer was found in the response."
    how = _WORDS["extracted"].get(extraction, f"by the rule “{extraction}”")
    compared = _WORDS["compared"].get(comparison, comparison and f"by the rule “{comparison}”")
    told = f", compared with the gold {compared}" if compared else ""
    return f"The answer was read {how}{told}. {_WORDS['status'].get(status, status)}"
