"""Decoders that choose one of K samples, and the decoder entries of a run record.

Self-consistency, weighted vote and best-of-N read the JSON objects of a record. A finished run
can therefore be decided again without its model.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from fsdpo_bench.decode.plan import DecodingPlan, sampled_name
from fsdpo_bench.decode.solution import DecodedSolution, DecodingCost, aggregate_rewards
from fsdpo_bench.tasks.grade import TaskVerdict
from fsdpo_bench.tasks.table import Task
from fsdpo_data.answers.comparison.equivalence import compare_answers

#: The answers that agree with an answer, the answer itself included, by answer.
Agreements = Mapping[str, frozenset[str]]
JsonObject = dict[str, Any]  #: A part of a run record.

#: Fields of a verdict in a record; ``strict`` only for benchmarks with a tolerance.
VERDICT_FIELDS = ("answer", "correct", "status", "rule", "strict")


def agreeing_answers(answers: Sequence[str | None]) -> Agreements:
    """Compare all pairs of different answers, and return the agreeing answers of each."""
    texts = list(dict.fromkeys(answer for answer in answers if answer and answer.strip()))
    agreeing_texts = {text: {text} for text in texts}
    for first, second in itertools.combinations(texts, 2):
        # The comparison treats its first argument as the gold answer, so try both orders.
        if _is_agreement(first, second) or _is_agreement(second, first):
            agreeing_texts[first].add(second)
            agreeing_texts[second].add(first)
    return {text: frozenset(agreeing) for text, agreeing in agreeing_texts.items()}


def _is_agreement(gold: str, answer: str) -> bool:
    return compare_answers(gold, answer).status == "correct"


def answer_classes(answers: Sequence[str | None], agreeing_texts: Agreements) -> list[int | None]:
    r"""Group equivalent answers: ``1/2``, ``\frac12`` and ``0.5`` are in one class.

    Agreement is not transitive: ``5`` agrees with ``5 m`` and with ``5 cm``. Two answers are in one
    class if they agree with the same answers of this list. The order of the answers therefore has
    no effect, and an ambiguous answer joins neither of the classes that it agrees with.

    Args:
        answers: One answer per sample; None or blank without an answer.
        agreeing_texts: Result of :func:`agreeing_answers` for these answers, or for a longer list.

    Returns:
        The class of each answer: the index of its first member. None for samples without an answer.
    """
    present_answers = {answer for answer in answers if answer in agreeing_texts}
    first_members: dict[frozenset[str], int] = {}
    classes: list[int | None] = []
    for index, answer in enumerate(answers):
        if answer is None or answer not in agreeing_texts:
            classes.append(None)
            continue
        agreeing = agreeing_texts[answer] & present_answers
        classes.append(first_members.setdefault(agreeing, index))
    return classes


def self_consistency(classes: Sequence[int | None]) -> int:
    """Return the index of the first sample of the largest class (Wang et al. 2023).

    Among equal classes, the class with the earliest sample wins. Samples without an answer do not
    vote. Without any answer, the result is 0.
    """
    return weighted_vote(classes, [1.0] * len(classes))


def weighted_vote(classes: Sequence[int | None], weights: Sequence[float | None]) -> int:
    """Return the index of the first sample of the class with the largest sum of weights.

    Among equal sums, the class with the earliest sample wins. Without any answer, the result is 0.

    Args:
        classes: Result of :func:`answer_classes`.
        weights: One weight per sample. None, for a sample that the scorer cannot read, counts as 0.
    """
    votes: dict[int, list[float]] = {}
    for answer_class, weight in zip(classes, weights, strict=True):
        if answer_class is not None:
            votes.setdefault(answer_class, []).append(weight or 0.0)
    # The keys are in the order of their first members, and max() returns the first of equal keys.
    return max(votes, key=lambda answer_class: math.fsum(votes[answer_class]), default=0)


def best_of_n(values: Sequence[float | None]) -> int:
    """Return the index of the sample with the highest reward; the earliest of equal ones.

    Args:
        values: One solution reward per sample. None is below every number. If all are None, the
            result is 0.
    """
    ranks = [-math.inf if value is None else value for value in values]
    return ranks.index(max(ranks))


def solution_row(solution: DecodedSolution) -> JsonObject:
    """Return the JSON object of a solution, without its verdict."""
    return asdict(solution) | {
        "seconds": round(solution.seconds, 6),
        "scoring_seconds": round(solution.scoring_seconds, 6),
    }


def verdict_row(task: Task, task_verdict: TaskVerdict) -> JsonObject:
    """Return the JSON object of a verdict."""
    verdict = task_verdict.verdict
    row: JsonObject = {
        "answer": verdict.answer,
        "correct": _is_correct(verdict.status),
        "status": verdict.status,
        "rule": verdict.rule,
    }
    if task.tolerance is not None:
        row["strict"] = _is_correct(task_verdict.strict.status)
    return row


def _is_correct(status: str) -> bool | None:
    """Return whether a status means a correct answer; None if the gold answer is unreadable."""
    return None if status == "gold_unparsed" else status == "correct"


def cost_row(cost: DecodingCost) -> JsonObject:
    """Return the JSON object of a cost."""
    return {"tokens": cost.tokens, "prm_calls": cost.prm_calls, "seconds": round(cost.seconds, 6)}


class _NamedResults(NamedTuple):
    """The results of several decoders on one problem, by result name."""

    entries: dict[str, JsonObject]  #: The answer of each decoder.
    costs: dict[str, JsonObject]  #: The cost of each decoder.


def apply_decoders(
    plan: DecodingPlan,
    names: Sequence[str],
    solutions: Sequence[JsonObject],
    own_costs: Mapping[str, JsonObject],
) -> JsonObject:
    """Return the fields ``samples``, ``decoded`` and ``cost`` of a record.

    Args:
        plan: The decoders that choose from samples.
        names: Names of all results, in the order of the record.
        solutions: Graded samples, followed by the graded solution of each name in ``own_costs``.
        own_costs: Cost of each decoder that generates its own solution, such as ``greedy``.
    """
    n_samples = len(solutions) - len(own_costs)
    samples = list(solutions[:n_samples])
    results = _choose_samples(plan, samples) if samples else _NamedResults({}, {})
    for name, solution in zip(own_costs, solutions[n_samples:], strict=True):
        results.entries[name] = _verdict_entry(solution) | {"sample": None, "solution": solution}
        results.costs[name] = own_costs[name]
    return {
        "samples": samples,
        "decoded": {name: results.entries[name] for name in names},
        "cost": {name: results.costs[name] for name in names},
    }


def _verdict_entry(solution: JsonObject) -> JsonObject:
    """Return the verdict fields of a graded solution."""
    return {key: solution[key] for key in VERDICT_FIELDS if key in solution}


def _choose_samples(plan: DecodingPlan, samples: Sequence[JsonObject]) -> _NamedResults:
    """Apply every decoder of the plan that chooses from samples, at every K."""
    answers = [sample["answer"] for sample in samples]
    agreeing_texts = agreeing_answers(answers)
    values = [aggregate_rewards(sample["rewards"], plan.aggregate) for sample in samples]
    choose_sample: Mapping[str, Callable[[int], int]] = {
        "sc": lambda k: self_consistency(answer_classes(answers[:k], agreeing_texts)),
        "weighted": lambda k: weighted_vote(
            answer_classes(answers[:k], agreeing_texts), values[:k]
        ),
        "bon": lambda k: best_of_n(values[:k]),
    }
    results = _NamedResults({}, {})
    for decoder in choose_sample:
        if decoder not in plan.decoders:
            continue
        for k in plan.ks:
            name = sampled_name(decoder, k, plan.aggregate)
            index = choose_sample[decoder](k)
            results.entries[name] = _verdict_entry(samples[index]) | {"sample": index}
            results.costs[name] = cost_row(_sum_costs(samples[:k], uses_prm=decoder != "sc"))
    return results


def _sum_costs(samples: Sequence[JsonObject], *, uses_prm: bool) -> DecodingCost:
    """Return the cost of the samples; with ``uses_prm``, including the reward model."""
    cost = DecodingCost()
    for sample in samples:
        scoring_seconds = sample.get("scoring_seconds", 0.0) if uses_prm else 0.0
        cost += DecodingCost(
            tokens=sample["n_tokens"],
            prm_calls=1 if uses_prm else 0,
            seconds=sample["seconds"] + scoring_seconds,
        )
    return cost
