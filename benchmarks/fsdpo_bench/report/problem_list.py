"""Problems and solutions of a run, for the list of its report."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from fsdpo_cards.pages.problem_list import BUDGET, OUTCOMES, ProblemList, shorten
from fsdpo_cards.render import tokens

from fsdpo_bench.results.outcomes import Record, groups_of
from fsdpo_data.core.toml_tables import read_toml

_WORDS = read_toml(Path(__file__).with_name("explain"))


def build_problem_list(records: Iterable[Record], total: int, budget: int = BUDGET) -> ProblemList:
    """Choose what the list shows; with more problems than there is room for, every n-th."""
    shown = ProblemList(OUTCOMES, total, budget)
    for record in islice(records, 0, None, shown.stride):
        solutions, decoded = solutions_of(record)
        shown.add(question_entry(shown, record) | {"decoded": decoded}, solutions, decoded.values())
    return shown


def question_entry(shown: ProblemList, record: Record) -> dict[str, Any]:
    """Return what was asked, as the list has it."""
    return {
        "task": record["task"],
        "id": record["problem_id"],
        "groups": groups_of(record["metadata"]),
        **shown.question_entry(record["question"], record["gold"], record["prompt"]),
    }


def solutions_of(
    record: Record, run: str = ""
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Return all solutions, named after their ``run``, and by decoder which of them it chose."""
    rows = [(f"sample {i + 1}", each) for i, each in enumerate(record["samples"])]
    decoded = {}
    for name, each in record["decoded"].items():
        chosen = each.get("sample")
        if each.get("solution"):
            chosen = len(rows)
            rows.append((name, each["solution"]))
        answer = each["answer"] and shorten(each["answer"])
        decoded[name] = {"status": each["status"], "answer": answer, "taken": [chosen]}
    return [_solution(run + name, row) for name, row in rows], decoded


def _solution(name: str, row: Record) -> dict[str, Any]:
    return {
        "name": name,
        **{key: row[key] for key in ("steps", "rewards", "answer", "status")},
        "why": explain(row["status"], row["rule"]),
        "tokens": tokens(row["n_tokens"]),
        "finish": row["finish_reason"],
    }


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
