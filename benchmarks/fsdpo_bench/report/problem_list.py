"""Collect the problems and solutions of a run for the list of its report."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from fsdpo_cards.problem_list import (
    DEFAULT_BUDGET_BYTES,
    OUTCOME_MARKS,
    ProblemList,
    shorten,
)
from fsdpo_cards.render import format_token_count

from fsdpo_bench.decode.records import ProblemRecord, SolutionRecord
from fsdpo_bench.results.outcomes import problem_groups
from fsdpo_data.core.entities import JUDGE_RULE_PREFIX
from fsdpo_data.core.toml_tables import read_toml

_PHRASES = read_toml(Path(__file__).with_name("explain"))


def build_problem_list(
    records: Iterable[ProblemRecord], total: int, budget_bytes: int = DEFAULT_BUDGET_BYTES
) -> ProblemList:
    """Build the list of a report; if not all problems fit, it has every n-th.

    Args:
        records: The records of the run.
        total: The number of records.
        budget_bytes: Bytes of text in the list.
    """
    problem_list = ProblemList(OUTCOME_MARKS, total, budget_bytes)
    for record in islice(records, 0, None, problem_list.stride):
        solutions, decoder_entries = solution_entries(record)
        problem = question_entry(problem_list, record) | {"decoded": decoder_entries}
        problem_list.add_problem(problem, solutions, decoder_entries.values())
    return problem_list


def question_entry(problem_list: ProblemList, record: ProblemRecord) -> dict[str, Any]:
    """Return the entry of a problem, without its solutions."""
    return {
        "task": record.task,
        "id": record.problem_id,
        "groups": problem_groups(record.metadata),
        **problem_list.question_entry(record.question, record.gold, record.prompt),
    }


def solution_entries(
    record: ProblemRecord, name_prefix: str = ""
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Return the entries of all solutions, and the entry of each decoder with its choice.

    Args:
        record: The record of a problem.
        name_prefix: Text in front of the solution names.
    """
    solutions = [(f"sample {i + 1}", sample) for i, sample in enumerate(record.samples)]
    decoder_entries = {}
    for decoder, entry in record.decoded.items():
        chosen_index = entry.sample
        if entry.solution is not None:
            chosen_index = len(solutions)
            solutions.append((decoder, entry.solution))
        decoder_entries[decoder] = {
            "status": entry.status,
            "answer": entry.answer and shorten(entry.answer),
            "taken": [] if chosen_index is None else [chosen_index],
        }
    entries = [_solution_entry(name_prefix + name, solution) for name, solution in solutions]
    return entries, decoder_entries


def _solution_entry(name: str, solution: SolutionRecord) -> dict[str, Any]:
    return {
        "name": name,
        "steps": solution.steps,
        "rewards": solution.rewards,
        "answer": solution.answer,
        "status": solution.status,
        "why": explain_verdict(solution.status, solution.rule),
        "tokens": format_token_count(solution.n_tokens),
        "finish": solution.finish_reason,
    }


def explain_verdict(status: str, rule: str) -> str:
    """Explain a verdict by its status and rule, e.g. ``correct`` and ``boxed/number``."""
    if rule.startswith(JUDGE_RULE_PREFIX):
        judge = rule.removeprefix(JUDGE_RULE_PREFIX)
        return f"A part was not read, so the judge {judge} decided. {_PHRASES['status'][status]}"
    extraction, _, comparison = rule.partition("/")
    if status == "gold_unparsed":
        return "The gold answer is empty or unreadable, so the problem does not count."
    if status == "no_answer":
        return "No answer was found in the response."
    extraction_phrase = _PHRASES["extracted"].get(extraction, f"by the rule “{extraction}”")
    explanation = f"The answer was read {extraction_phrase}"
    if comparison:
        comparison_phrase = _PHRASES["compared"].get(comparison, f"by the rule “{comparison}”")
        explanation += f", compared with the gold {comparison_phrase}"
    return f"{explanation}. {_PHRASES['status'].get(status, status)}"
