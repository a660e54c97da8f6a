"""Ask a judge about the undecided answers of a finished run, and rewrite its records."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from fsdpo_bench.decode.records import (
    AnswerRecord,
    DecoderRecord,
    ProblemRecord,
    SolutionRecord,
)
from fsdpo_bench.runs.records import read_records, write_records
from fsdpo_data.answers import GradingRequest
from fsdpo_data.core.entities import UNDECIDED
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import write_text
from fsdpo_data.core.input_files import read_json
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.build_records import AnswerJudgeStats
from fsdpo_data.engines.answer_judge import AnswerJudge
from fsdpo_data.engines.answer_judge_formats import JudgeDecision, JudgeQuestion, add_answer_options
from fsdpo_data.models.thinking import find_thinking
from fsdpo_data.stages.answer_judge import (
    FOLDER,
    JudgeSession,
    judge_question,
    open_judge_session,
)

STATS_FILE = "stats.json"  #: Counts and cost of the judge, in its folder.

AnswerT = TypeVar("AnswerT", bound=AnswerRecord)


def judge_run(judge: AnswerJudge, out: Path, tasks: Iterable[str], progress: Progress) -> None:
    """Ask a judge about the undecided answers of a run, and write its decisions to the records.

    The caller has locked the directory, and all records are complete. After an interruption, the
    answers that the judge has decided are looked up again, so that the counts are complete.

    Args:
        judge: The judge.
        out: Directory of the run.
        tasks: Names of the benchmarks.
        progress: Progress bar.
    """
    with open_judge_session(judge, out, progress) as session:
        for task in tasks:
            _judge_task(session, out, task)
        stats = session.stats().to_dict()
    write_text(out / FOLDER / STATS_FILE, json.dumps(stats, indent=1) + "\n")


def read_judge_stats(out: Path) -> AnswerJudgeStats | None:
    """Return the counts and the cost of the judge of a run; None without finished work of a judge.

    Raises:
        InputError: if the file is damaged.
    """
    file = out / FOLDER / STATS_FILE
    if not file.exists():
        return None
    try:
        return AnswerJudgeStats.model_validate(read_json(file))
    except ValueError as error:
        raise InputError(
            f"{file}: {error}. Delete the file, and continue the run with `resume=True`."
        ) from None


def _judge_task(session: JudgeSession, out: Path, task: str) -> None:
    """Write the decisions on the undecided answers of a benchmark to its records."""
    rule = session.judge.rule
    items = [
        _judge_question(record, solution)
        for record in read_records(out, task)
        for solution in _solutions(record)
        if _is_for_judge(solution, rule)
    ]
    if not items:
        return
    decisions = iter(session.decide(items))

    def decide(answer: AnswerT) -> AnswerT:
        """Return an answer with the next decision, if the judge was asked about the answer."""
        return (
            _add_decision(answer, next(decisions), rule) if _is_for_judge(answer, rule) else answer
        )

    records = (
        _replace_solutions(record, [decide(solution) for solution in _solutions(record)])
        for record in read_records(out, task)
    )
    write_records(out, task, records)


def _solutions(record: ProblemRecord) -> list[SolutionRecord]:
    """Return the samples of a problem, and the solutions of other decoders."""
    return [*record.samples, *record.own_solutions.values()]


def _is_for_judge(answer: AnswerRecord, rule: str) -> bool:
    """Return whether the grader left an answer undecided."""
    return answer.status == UNDECIDED or answer.rule == rule


def _judge_question(record: ProblemRecord, solution: SolutionRecord) -> JudgeQuestion:
    """Return everything that a judge reads about an answer."""
    request = GradingRequest(
        gold=record.gold,
        response=solution.text,
        thinking=find_thinking(record.prompt, solution.text),
        alternative_golds=record.metadata.get("alternative_golds", ()),
    )
    question = add_answer_options(record.question, record.metadata)
    return judge_question(question, request, solution.answer)


def _add_decision(answer: AnswerT, decision: JudgeDecision, rule: str) -> AnswerT:
    """Return an answer with the decision of a judge; an undecided answer stays as it is.

    The judge knows no tolerance, so its decision also holds without the tolerance.
    """
    if decision == UNDECIDED:
        return answer
    is_correct = decision == "correct"
    strict = None if answer.strict is None else is_correct
    return replace(answer, correct=is_correct, status=decision, rule=rule, strict=strict)


def _replace_solutions(record: ProblemRecord, solutions: Sequence[SolutionRecord]) -> ProblemRecord:
    """Return a record with other verdicts on its solutions; the decoders choose as before."""
    samples = tuple(solutions[: len(record.samples)])
    own_solutions = iter(solutions[len(samples) :])
    decoded = {}
    for name, entry in record.decoded.items():
        decoded[name] = entry
        if entry.solution is not None:
            solution = next(own_solutions)
            decoded[name] = DecoderRecord.from_answer(solution, solution=solution)
        elif entry.sample is not None:
            decoded[name] = DecoderRecord.from_answer(samples[entry.sample], sample=entry.sample)
    return replace(record, samples=samples, decoded=decoded)
