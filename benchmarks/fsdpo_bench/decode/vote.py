"""Choose one of K samples: by vote, by weighted vote, by reward; then say what was decided.

What is decided is worked out of rows as they are kept, so that a run can be decided again without
its model.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fsdpo_bench.decode.plan import DecodingPlan, sampled_name
from fsdpo_bench.decode.solution import DecodedSolution, DecodingCost, aggregate_rewards
from fsdpo_bench.tasks.grade import TaskVerdict
from fsdpo_bench.tasks.table import Task
from fsdpo_data.answers.comparison.equivalence import compare_answers

Agreements = Mapping[str, frozenset[str]]


def agreeing_answers(answers: Sequence[str | None]) -> Agreements:
    """Return for each different answer the answers that it agrees with, itself among them."""
    texts = list(dict.fromkeys(each for each in answers if each and each.strip()))
    found = {text: {text} for text in texts}
    for one, other in itertools.combinations(texts, 2):
        if any(compare_answers(*pair).status == "correct" for pair in ((one, other), (other, one))):
            found[one].add(other)
            found[other].add(one)
    return {text: frozenset(others) for text, others in found.items()}


def answer_classes(answers: Sequence[str | None], agree: Agreements) -> list[int | None]:
    r"""Group equivalent answers (``1/2``, ``\frac12`` and ``0.5`` are one).

    To agree is not transitive: ``5`` agrees with ``5 m`` and with ``5 cm``. Answers are in one
    class if they agree with the same of these answers, so their order decides nothing, and one that
    could be two things stands for neither.

    ``agree`` are :func:`agreeing_answers` of these answers and maybe more.

    An answer's class is the index of its first member; None where there is no answer.
    """
    given = {each for each in answers if each in agree}
    firsts: dict[frozenset[str], int] = {}
    return [
        firsts.setdefault(agree[each] & given, index)
        if each is not None and each in agree
        else None
        for index, each in enumerate(answers)
    ]


def self_consistency(classes: Sequence[int | None]) -> int:
    """Self-consistency: return the first sample of the largest class; ties go to the earliest.

    Samples without an answer do not vote; if none has one, the first sample is returned.
    """
    return weighted_vote(classes, [1.0] * len(classes))


def weighted_vote(classes: Sequence[int | None], weights: Sequence[float | None]) -> int:
    """Return the first sample of the class with the largest sum of weights.

    Ties go to the earliest. A sample without a weight (the scorer could not read it) adds nothing.
    """
    votes: dict[int, list[float]] = {}
    for found, weight in zip(classes, weights, strict=True):
        if found is not None:
            votes.setdefault(found, []).append(weight or 0.0)
    # Keys stand in the order of their first members, and max() keeps the first of equals.
    return max(votes, key=lambda first: math.fsum(votes[first]), default=0)


def best_of_n(values: Sequence[float | None]) -> int:
    """Best-of-N: return the index of the highest value, the earliest of equals.

    None (no reward) is below every number; if all are None, the first sample is returned.
    """
    ranks = [-math.inf if value is None else value for value in values]
    return ranks.index(max(ranks))


Row = dict[str, Any]

#: What is said of a verdict; ``strict`` only where the benchmark has a tolerance.
VERDICT_FIELDS = ("answer", "correct", "status", "rule", "strict")


def solution_row(solution: DecodedSolution) -> Row:
    """Return a solution as it is kept, its verdict aside."""
    spent = {name: round(getattr(solution, name), 6) for name in ("seconds", "scoring_seconds")}
    return asdict(solution) | spent


def verdict_row(task: Task, judged: TaskVerdict) -> Row:
    """Return a verdict as it is kept; ``correct`` is None where the gold cannot be read."""
    row: Row = {
        "answer": judged.verdict.answer,
        "correct": _is_right(judged.verdict.status),
        "status": judged.verdict.status,
        "rule": judged.verdict.rule,
    }
    return row if task.tolerance is None else row | {"strict": _is_right(judged.strict.status)}


def _is_right(status: str) -> bool | None:
    return None if status == "gold_unparsed" else status == "correct"


def decide(
    plan: DecodingPlan, names: Sequence[str], solutions: Sequence[Row], own: Mapping[str, Row]
) -> Row:
    """Return what a record says of its solutions: samples, and every decoder's answer and cost.

    ``names`` are those of all results, in their order; ``own`` has the cost of decoders that make
    solutions of their own, which stand behind the samples.
    """
    n = len(solutions) - len(own)
    entries, costs = _of_samples(plan, solutions[:n]) if n else ({}, {})
    entries |= {name: _entry(row, None) for name, row in zip(own, solutions[n:], strict=True)}
    costs |= own
    return {
        "samples": list(solutions[:n]),
        "decoded": {name: entries[name] for name in names},
        "cost": {name: costs[name] for name in names},
    }


def _entry(row: Row, sample: int | None) -> Row:
    """Return what a decoder decided: one of the samples, or a solution of its own."""
    found: Row = {key: row[key] for key in VERDICT_FIELDS if key in row}
    return found | {"sample": sample} | ({"solution": row} if sample is None else {})


def _of_samples(plan: DecodingPlan, rows: Sequence[Row]) -> tuple[dict[str, Row], dict[str, Row]]:
    """Choose with every decoder of the plan that chooses, at every K; return entries and costs."""
    answers = [row["answer"] for row in rows]
    agree = agreeing_answers(answers)
    values = [aggregate_rewards(row["rewards"], plan.aggregate) for row in rows]
    chosen: Mapping[str, Callable[[int], int]] = {
        "sc": lambda k: self_consistency(answer_classes(answers[:k], agree)),
        "weighted": lambda k: weighted_vote(answer_classes(answers[:k], agree), values[:k]),
        "bon": lambda k: best_of_n(values[:k]),
    }
    entries, costs = {}, {}
    for decoder in (each for each in chosen if each in plan.decoders):
        for k in plan.ks:
            name = sampled_name(decoder, k, plan.aggregate)
            index = chosen[decoder](k)
            entries[name] = _entry(rows[index], index)
            spent, scored = DecodingCost(), decoder != "sc"
            for row in rows[:k]:
                seconds = row["seconds"] + (row.get("scoring_seconds", 0.0) if scored else 0.0)
                spent += DecodingCost(row["n_tokens"], int(scored), seconds)
            costs[name] = cost_row(spent)
    return entries, costs


def cost_row(cost: DecodingCost) -> Row:
    """Return a cost as it is kept."""
    return {"tokens": cost.tokens, "prm_calls": cost.prm_calls, "seconds": round(cost.seconds, 6)}
