"""Grade the solutions of problems, and apply the decoders that choose from samples.

Both need no model, so a finished run can be graded and decoded again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fsdpo_bench.decode.decoder import Candidates, DecoderSetup
from fsdpo_bench.decode.records import (
    NO_TOLERANCE,
    AnswerRecord,
    DecodedProblem,
    DecoderRecord,
    ProblemRecord,
    SolutionRecord,
)
from fsdpo_bench.decode.solution import DecodingCost, aggregate_rewards
from fsdpo_bench.metrics.answer_classes import agreeing_answers, voting_answers
from fsdpo_bench.tasks.table import Task
from fsdpo_data.answers import GradingRequest, Verdict
from fsdpo_data.answers.pool import grade_requests
from fsdpo_data.core.entities import Outcome, Problem
from fsdpo_data.models.thinking import find_thinking


class TaskResponse(NamedTuple):
    """A response to a problem of a benchmark."""

    problem: Problem  #: The problem, with its gold answer.
    text: str  #: The complete response.
    finish_reason: str = "stop"  #: ``stop``, or ``length`` for a truncated response.
    prompt: str = ""  #: The rendered prompt, which may open the thinking; empty if unknown.


@dataclass(frozen=True, slots=True)
class TaskVerdict:
    """The verdicts on a response to a problem of a benchmark."""

    verdict: Verdict  #: The verdict that counts, with the tolerance of the problem or benchmark.
    strict: Verdict  #: The verdict without any tolerance.


def grade_problems(
    task: Task,
    problems: Sequence[DecodedProblem],
    setups: Sequence[DecoderSetup],
    result_names: Sequence[str],
    workers: int | None,
) -> list[ProblemRecord]:
    """Return the records of problems, with verdicts and decoder answers.

    Args:
        task: The benchmark of the problems.
        problems: The problems with their solutions.
        setups: The decoders of the run; those with solutions of their own have no effect here.
        result_names: Names of all results, in the order of the records.
        workers: Number of grading processes.
    """
    responses = [response for problem in problems for response in _task_responses(problem)]
    verdicts = iter(grade_task_responses(task, responses, workers))
    return [
        _grade_problem(task, problem, setups=setups, result_names=result_names, verdicts=verdicts)
        for problem in problems
    ]


def _task_responses(problem: DecodedProblem) -> list[TaskResponse]:
    """Return the solutions of a problem as responses to it."""
    return [
        TaskResponse(
            problem=problem.problem,
            text=solution.text,
            finish_reason=solution.finish_reason,
            prompt=problem.prompt,
        )
        for solution in problem.solutions
    ]


def _grade_problem(
    task: Task,
    problem: DecodedProblem,
    setups: Sequence[DecoderSetup],
    result_names: Sequence[str],
    verdicts: Iterator[TaskVerdict],
) -> ProblemRecord:
    """Return the record of a problem, with the next verdicts of the iterator."""
    solutions = [
        SolutionRecord.from_solution(solution, _answer_record(task, next(verdicts)))
        for solution in problem.solutions
    ]
    samples = solutions[: len(problem.samples)]
    answers: dict[str, DecoderRecord] = {}
    costs: dict[str, DecodingCost] = {}
    for setup, index in _choose_samples(setups, samples):
        answers[setup.name] = (
            DecoderRecord.without_choice(samples)
            if index is None
            else DecoderRecord.from_answer(samples[index], sample=index)
        )
        costs[setup.name] = _sum_costs(samples[: setup.k], includes_prm=setup.decoder.needs_rewards)
    own_solutions = solutions[len(samples) :]
    for name, solution in zip(problem.own_solutions, own_solutions, strict=True):
        answers[name] = DecoderRecord.from_answer(solution, solution=solution)
        costs[name] = problem.own_solutions[name].cost.round_seconds()
    return ProblemRecord(
        task=problem.task,
        row=problem.row,
        problem_id=problem.problem_id,
        question=problem.problem.question,
        gold=problem.problem.answer,
        metadata=dict(problem.problem.metadata),
        prompt=problem.prompt,
        samples=tuple(samples),
        decoded={name: answers[name] for name in result_names},
        cost={name: costs[name] for name in result_names},
    )


def _answer_record(task: Task, task_verdict: TaskVerdict) -> AnswerRecord:
    """Return the answer of a verdict; ``strict`` only for benchmarks with a tolerance."""
    verdict = task_verdict.verdict
    strict_correct = _is_correct(task_verdict.strict.status)
    return AnswerRecord(
        answer=verdict.answer,
        correct=_is_correct(verdict.status),
        status=verdict.status,
        rule=verdict.rule,
        strict=NO_TOLERANCE if task.tolerance is None else strict_correct,
    )


def _is_correct(status: Outcome) -> bool | None:
    """Return whether a status means a correct answer; None if the gold answer is unreadable."""
    return None if status == "gold_unparsed" else status == "correct"


def _choose_samples(
    setups: Sequence[DecoderSetup], samples: Sequence[SolutionRecord]
) -> Iterator[tuple[DecoderSetup, int | None]]:
    """Yield each decoder that chooses from samples, with the index of its choice or None."""
    if not samples:
        return
    votes = voting_answers(
        [sample.answer for sample in samples], [sample.text for sample in samples]
    )
    agreements = agreeing_answers(votes)
    rewards_by_aggregate: dict[str, list[float | None]] = {}
    for setup in setups:
        if setup.decoder.choose is None:
            continue
        if setup.aggregate not in rewards_by_aggregate:
            rewards_by_aggregate[setup.aggregate] = [
                aggregate_rewards(sample.rewards, setup.aggregate) if setup.aggregate else None
                for sample in samples
            ]
        candidates = Candidates(
            samples=samples[: setup.k],
            votes=votes[: setup.k],
            rewards=rewards_by_aggregate[setup.aggregate][: setup.k],
            agreements=agreements,
        )
        yield setup, setup.decoder.choose(candidates)


def _sum_costs(samples: Sequence[SolutionRecord], *, includes_prm: bool) -> DecodingCost:
    """Return the cost of the samples; with ``includes_prm``, including the reward model."""
    cost = DecodingCost()
    for sample in samples:
        cost += sample.cost(includes_prm=includes_prm)
    return cost.round_seconds()


def grade_task_responses(
    task: Task, responses: Sequence[TaskResponse], workers: int | None = None
) -> list[TaskVerdict]:
    """Grade responses, in order.

    Args:
        task: The benchmark of the responses. Its relative tolerance applies to problems without a
            relative tolerance of their own (``gold_tolerance``).
        responses: The responses.
        workers: Number of grading processes; small inputs are graded in this process.
    """
    strict_requests = [_strict_request(response) for response in responses]
    strict_verdicts = grade_requests(strict_requests, workers)
    tolerances = [
        response.problem.metadata.get("gold_tolerance", task.tolerance) for response in responses
    ]
    tolerant_requests = [
        request._replace(tolerance=tolerance)
        for request, tolerance in zip(strict_requests, tolerances, strict=True)
        if tolerance is not None
    ]
    tolerant_verdicts = iter(grade_requests(tolerant_requests, workers))
    return [
        TaskVerdict(strict if tolerance is None else next(tolerant_verdicts), strict)
        for strict, tolerance in zip(strict_verdicts, tolerances, strict=True)
    ]


def _strict_request(response: TaskResponse) -> GradingRequest:
    """Return the request to grade a response without any tolerance."""
    problem = response.problem
    return GradingRequest(
        gold=problem.answer,
        response=response.text,
        finish_reason=response.finish_reason,
        thinking=find_thinking(response.prompt, response.text),
        alternative_golds=problem.metadata.get("alternative_golds", ()),
    )
