"""Problems and solutions of a run, for the list of its report."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from fsdpo_cards.pages.browse import BUDGET, OUTCOMES, Browsable, cut, size

from fsdpo_bench.results.outcomes import Record, groups_of, tokens_of
from fsdpo_data.core.tables import read_table

_WORDS = read_table(Path(__file__).with_name("explain"))


def browsable(records: Iterable[Record], total: int, budget: int = BUDGET) -> Browsable:
    """Choose what the list shows; with more problems than there is room for, every n-th."""
    shown = Browsable(OUTCOMES, total, budget)
    for record in islice(records, 0, None, shown.stride):
        add_problem(shown, asked(shown, record), *solutions_of(record))
    return shown


def asked(shown: Browsable, record: Record) -> dict[str, Any]:
    """Return a problem for the page, without its solutions."""
    told = {"task": record["task"], "id": record["problem_id"]}
    texts = shown.asked(record["question"], record["gold"], record["prompt"])
    return {**told, **texts, "groups": groups_of(record["metadata"])}


def add_problem(
    shown: Browsable,
    problem: dict[str, Any],
    solutions: Sequence[tuple[str, Record]],
    decoded: Mapping[str, dict[str, Any]],
) -> None:
    """Add a problem with those of its solutions, with their names, that there is room for.

    ``decoded`` says by decoder what it decided; solutions that it took, by number, come first.
    """
    steps = [solution["steps"] for _, solution in solutions]
    first = [index for each in decoded.values() for index in each["taken"]]
    kept = shown.fitting(steps, first, size(problem) + size(decoded))
    for each in decoded.values():
        each["taken"] = [kept.get(index) for index in each["taken"]]
    problem["decoded"] = decoded
    problem["solutions"] = [_solution(shown, *solutions[index]) for index in kept]
    shown.problems.append(problem)
    for each in problem["solutions"]:
        told = (each["status"], each["rule"])
        shown.explanations.setdefault(" ".join(told), explain(*told))


def solutions_of(record: Record) -> tuple[list[tuple[str, Record]], dict[str, dict[str, Any]]]:
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
            "answer": cut(each["answer"], 300),
            "taken": [chosen],
        }
    return solutions, decoded


def _solution(shown: Browsable, name: str, row: Record) -> dict[str, Any]:
    return shown.solution(
        name,
        row["steps"],
        row["rewards"],
        answer=cut(row["answer"], 300),
        status=row["status"],
        rule=row["rule"],
        tokens=tokens_of(row),
        finish=row["finish_reason"],
    )


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
