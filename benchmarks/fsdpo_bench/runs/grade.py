"""Grade the solutions of problems, and apply the decoders that choose from samples.

Both need no model, so a finished run can be graded and decoded again.
"""

from collections.abc import Iterator, Sequence

from fsdpo_bench.decode.decoder import Candidates, DecoderSetup
from fsdpo_bench.decode.records import (
    AnswerRecord,
    DecodedProblem,
    DecoderRecord,
    ProblemRecord,
    SolutionRecord,
)
from fsdpo_bench.decode.solution import DecodingCost, aggregate_rewards
from fsdpo_bench.decoders.answer_classes import agreeing_answers, voting_answers
from fsdpo_data.answers import GradingRequest, Verdict
from fsdpo_data.core.entities import Outcome
from fsdpo_data.grading.pool import grade_requests
from fsdpo_data.stages.requests import grading_request


def grade_problems(
    problems: Sequence[DecodedProblem],
    setups: Sequence[DecoderSetup],
    result_names: Sequence[str],
    workers: int | None,
) -> list[ProblemRecord]:
    """Return the records of problems, with verdicts and decoder answers.

    Args:
        problems: The problems with their solutions.
        setups: The decoders of the run; those with solutions of their own have no effect here.
        result_names: Names of all results, in the order of the records.
        workers: Number of grading processes.
    """
    requests = [request for problem in problems for request in _grading_requests(problem)]
    verdicts = iter(grade_requests(requests, workers))
    return [
        _grade_problem(problem, setups=setups, result_names=result_names, verdicts=verdicts)
        for problem in problems
    ]


def _grading_requests(problem: DecodedProblem) -> list[GradingRequest]:
    """Return the requests to grade the solutions of a problem."""
    return [
        grading_request(
            problem.problem,
            solution.text,
            prompt=problem.prompt,
            finish_reason=solution.finish_reason,
        )
        for solution in problem.solutions
    ]


def _grade_problem(
    problem: DecodedProblem,
    setups: Sequence[DecoderSetup],
    result_names: Sequence[str],
    verdicts: Iterator[Verdict],
) -> ProblemRecord:
    """Return the record of a problem, with the next verdicts of the iterator."""
    solutions = [
        SolutionRecord.from_solution(solution, _answer_record(next(verdicts)))
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


def _answer_record(verdict: Verdict) -> AnswerRecord:
    """Return the answer of a verdict."""
    return AnswerRecord(
        answer=verdict.answer,
        correct=_is_correct(verdict.status),
        status=verdict.status,
        rule=verdict.rule,
        strict=verdict.strict,
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
