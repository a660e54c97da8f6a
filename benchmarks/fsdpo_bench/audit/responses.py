"""Responses with the verdicts of two graders, from files of responses or from two runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from fsdpo_bench.decode.records import ProblemRecord, SolutionRecord
from fsdpo_bench.results.outcomes import key_records
from fsdpo_bench.runs.records import read_config, read_records
from fsdpo_data.core.entities import MODEL_FAILURES
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.progress import Progress
from fsdpo_data.problems.load import load_problems
from fsdpo_data.recorded.formats import RecordedResponse, question_key
from fsdpo_data.recorded.import_outputs import unambiguous_problems
from fsdpo_data.recorded.outputs import GradedResponse, grade_outputs, read_outputs

NOT_COUNTED = "gold_unparsed"  #: Outcome of responses that no score counts.


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedResponse:
    """A response with the verdict of the other grader and with ours."""

    group: str  #: The file, model or benchmark whose responses form one score.
    row: int  #: Row in the file, or of the problem in the benchmark.
    question: str  #: The question; empty if unknown.
    response: str  #: The text of the response.
    gold: str  #: The gold answer of our verdict.
    other_gold: str  #: The gold answer of the other verdict.
    #: Outcome by the other grader. Files have only ``correct`` and ``incorrect``.
    other_outcome: str
    other_answer: str | None  #: Answer by the other grader; empty for none, None if unknown.
    outcome: str  #: Our outcome.
    answer: str | None  #: Our extracted answer.
    rule: str  #: The rules of our extraction and comparison.
    unread: str  #: For ``undecided``: the part that our grader did not read.

    @property
    def is_counted(self) -> bool:
        """Whether both graders count the response."""
        return NOT_COUNTED not in (self.outcome, self.other_outcome)

    @property
    def problem(self) -> str:
        """Key of the problem; responses to one problem are not independent."""
        return question_key(self.question) or f"{self.group}/{self.row}"

    @property
    def is_disputed(self) -> bool:
        """Whether one grader accepts and the other does not, or only one of them decides."""
        return self.is_counted and _verdict_class(self.outcome) != _verdict_class(
            self.other_outcome
        )


def _verdict_class(outcome: str) -> str:
    """Return ``correct``, ``wrong`` or ``open`` for an outcome."""
    if outcome == "correct":
        return "correct"
    return "wrong" if outcome in MODEL_FAILURES else "open"


class AuditedSet(NamedTuple):
    """The responses of an audit."""

    responses: list[AuditedResponse]  #: The responses with two verdicts.
    without_verdict: int = 0  #: Responses without a verdict of the other grader, left out.
    replaced_golds: int = 0  #: Responses whose gold comes from ``problems`` and differs.


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """How to read and grade files of responses."""

    verdict_field: str | None = None  #: Field with the other verdict; None for the format's field.
    answer_field: str | None = None  #: Field with the other answer; None for the format's field.
    problems: Sequence[str] = ()  #: Sources of problems, whose golds replace the golds of files.
    tolerance: float | None = None  #: Relative error of numeric answers; None for exact answers.
    workers: int | None = None  #: Number of grading processes; None for all CPU cores.


def read_audited_files(
    files: Sequence[Path], settings: FileSettings, progress: Progress
) -> AuditedSet:
    """Read recorded responses with the verdicts of another grader, and grade them.

    Raises:
        InputError: if a row cannot be read, a file has no verdict, or no question of a file is in
            the problems of ``settings``.
    """
    golds = _read_golds(settings.problems)
    recorded: list[RecordedResponse] = []
    groups: list[str] = []
    without_verdict = 0
    for file, label in zip(files, _file_labels(files), strict=True):
        responses = read_outputs(file, settings.verdict_field, settings.answer_field)
        with_verdict = [response for response in responses if response.correct is not None]
        if not with_verdict:
            raise InputError(
                f"{file} has no verdicts of another grader. Name their field, e.g. "
                "`verdict=correct`.",
                field="verdict",
                value=settings.verdict_field,
            )
        without_verdict += len(responses) - len(with_verdict)
        recorded += with_verdict
        groups += [response.model or label for response in with_verdict]
    new_golds = [golds.get(question_key(response.question)) for response in recorded]
    if golds and all(gold is None for gold in new_golds):
        raise InputError(
            "no question of the files is in these problems.",
            field="problems",
            value=settings.problems[0],
        )
    to_grade = [
        response if gold is None else replace(response, gold=gold)
        for response, gold in zip(recorded, new_golds, strict=True)
    ]
    graded = grade_outputs(to_grade, settings.tolerance, settings.workers, progress)
    audited = [
        _audited_response(item, group, response.gold)
        for item, group, response in zip(graded, groups, recorded, strict=True)
    ]
    replaced_golds = sum(response.gold != response.other_gold for response in audited)
    return AuditedSet(audited, without_verdict, replaced_golds)


def _audited_response(graded: GradedResponse, group: str, other_gold: str) -> AuditedResponse:
    """Return a graded response with the verdict of its file.

    Args:
        graded: The response with our verdict.
        group: The file or model of the response.
        other_gold: The gold answer in the file.
    """
    response = graded.recorded_response
    verdict = graded.verdict
    return AuditedResponse(
        group=group,
        row=response.row,
        question=response.question,
        response=response.response,
        gold=response.gold,
        other_gold=other_gold,
        other_outcome="correct" if response.correct else "incorrect",
        other_answer=response.answer,
        outcome=verdict.status,
        answer=verdict.answer,
        rule=verdict.rule,
        unread=verdict.unread,
    )


def _read_golds(problems: Sequence[str]) -> dict[str, str]:
    """Return the gold answers of sources of problems, by :func:`question_key`."""
    if not problems:
        return {}
    by_question = unambiguous_problems(load_problems(problems, split="test").problems)
    return {question: problem.answer for question, problem in by_question.items()}


def _file_labels(files: Sequence[Path]) -> list[str]:
    """Return the names of files without suffixes; with their folders if names repeat."""
    names = [file.name.split(".json")[0].removesuffix(".parquet") for file in files]
    return [
        f"{file.absolute().parent.name}/{name}" if names.count(name) > 1 else name
        for file, name in zip(files, names, strict=True)
    ]


def read_audited_runs(run: Path, other_run: Path) -> AuditedSet:
    """Pair the verdicts of two runs on the same solutions, such as a run and its regrading.

    Args:
        run: The run with our verdicts.
        other_run: The run with the other verdicts.

    Raises:
        InputError: if a directory is not a run, or the runs have other solutions.
    """
    titles = {name: task.title for name, task in read_config(run).tasks.items()}
    read_config(other_run)
    records = dict(key_records(read_records(run)))
    other_records = dict(key_records(read_records(other_run)))
    common_keys = [key for key in records if key in other_records]
    if not common_keys:
        raise InputError(f"{run} and {other_run} have no common problem.")
    responses = []
    for key in common_keys:
        pairs = zip_longest(_solutions(records[key]), _solutions(other_records[key]))
        for solution, other_solution in pairs:
            if not (solution and other_solution and solution.text == other_solution.text):
                raise InputError(
                    f"problem {key[1]}: the runs have other solutions, so their verdicts cannot "
                    "be compared. Compare the runs with `fsdpo-bench diff`."
                )
            responses.append(
                AuditedResponse(
                    group=titles[key[0]],
                    row=records[key].row,
                    question=records[key].question,
                    response=solution.text,
                    gold=records[key].gold,
                    other_gold=other_records[key].gold,
                    other_outcome=other_solution.status,
                    other_answer=other_solution.answer or "",
                    outcome=solution.status,
                    answer=solution.answer,
                    rule=solution.rule,
                    unread="",
                )
            )
    return AuditedSet(responses)


def _solutions(record: ProblemRecord) -> Iterator[SolutionRecord]:
    """Yield the samples of a problem, then the solutions of its decoders."""
    yield from record.samples
    yield from record.own_solutions.values()
