"""Decide: from a problem's graded samples to the answer of every decoder, and what it cost.

Works on rows as they are kept, so that a run can be decided again without its model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fsdpo_bench.decode.choose import agreements, answer_classes, best, majority, weighted_majority
from fsdpo_bench.decode.plan import Plan, sampled_name
from fsdpo_bench.decode.solution import Cost, Solution, value
from fsdpo_bench.tasks.judge import Judged

Row = dict[str, Any]

#: What is said of a verdict; ``strict`` only where the benchmark has a tolerance.
VERDICT = ("answer", "correct", "status", "rule", "strict")


def solution_row(solution: Solution, judged: Judged, *, tolerant: bool) -> Row:
    """Return a solution with its verdict as it is kept."""
    return {
        "text": solution.text,
        "steps": list(solution.steps),
        "finish_reason": solution.finish_reason,
        "n_tokens": solution.n_tokens,
        "seconds": round(solution.seconds, 6),
        "rewards": None if solution.rewards is None else list(solution.rewards),
        "scoring_seconds": round(solution.scoring_seconds, 6),
        **verdict_row(judged, tolerant=tolerant),
    }


def verdict_row(judged: Judged, *, tolerant: bool) -> Row:
    """Return a verdict as it is kept; ``correct`` is None where the gold cannot be read."""
    row: Row = {
        "answer": judged.verdict.answer,
        "correct": _is_right(judged.verdict.status),
        "status": judged.verdict.status,
        "rule": judged.verdict.rule,
    }
    if tolerant:
        row["strict"] = _is_right(judged.strict.status)
    return row


def _is_right(status: str) -> bool | None:
    return None if status == "gold_unparsed" else status == "correct"


def entry(row: Mapping[str, Any], sample: int | None) -> Row:
    """Return what a decoder decided: one of the samples, or a solution of its own."""
    found: Row = {key: row[key] for key in VERDICT if key in row}
    found["sample"] = sample
    if sample is None:
        found["solution"] = dict(row)
    return found


def decide_samples(plan: Plan, rows: Sequence[Row]) -> tuple[dict[str, Row], dict[str, Row]]:
    """Choose among a problem's samples with every decoder of the plan that does, at every K.

    Returns:
        Entries and costs, both by the name of the result.
    """
    answers = [row["answer"] for row in rows]
    agree = agreements(answers)
    values = [value(row["rewards"], plan.aggregate) for row in rows]
    chosen: Mapping[str, Callable[[int], int]] = {
        "sc": lambda k: majority(answer_classes(answers[:k], agree)),
        "weighted": lambda k: weighted_majority(answer_classes(answers[:k], agree), values[:k]),
        "bon": lambda k: best(values[:k]),
    }
    entries, costs = {}, {}
    for decoder in (each for each in chosen if each in plan.decoders):
        for k in plan.ks:
            name = sampled_name(decoder, k, plan.aggregate)
            index = chosen[decoder](k)
            entries[name] = entry(rows[index], index)
            costs[name] = cost_row(_spent(rows[:k], scored=decoder != "sc"))
    return entries, costs


def _spent(rows: Sequence[Row], *, scored: bool) -> Cost:
    total = Cost()
    for row in rows:
        seconds = row["seconds"] + (row["scoring_seconds"] if scored else 0.0)
        total += Cost(row["n_tokens"], int(scored), seconds)
    return total


def cost_row(cost: Cost) -> Row:
    """Return a cost as it is kept."""
    return {
        "tokens": cost.tokens,
        "prm_calls": cost.prm_calls,
        "seconds": round(cost.seconds, 6),
    }
