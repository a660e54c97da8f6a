"""Read the verdicts, costs and groups of problems from records, without the texts of solutions."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fsdpo_bench.decode.records import DecoderRecord, ProblemRecord
from fsdpo_bench.decode.solution import DecodingCost
from fsdpo_bench.tasks.table import RESERVED_METADATA


@dataclass(frozen=True, slots=True)
class DecoderAnswer:
    """One decoder's answer to one problem."""

    #: Outcome of grading. ``undecided`` and ``timed_out`` count as wrong; ``gold_unparsed`` does
    #: not count.
    status: str
    correct: bool | None  #: Whether the answer is correct; None if the problem does not count.
    strict: bool | None  #: The same without the tolerance of the benchmark.
    answer: str | None  #: The extracted answer.
    cost: DecodingCost  #: Cost of the decoder.
    has_judge_rule: bool = False  #: Whether a judge decided the answer, and not the grader.


@dataclass(frozen=True, slots=True)
class ProblemResult:
    """The results of one problem of a run."""

    task: str  #: Name of the benchmark.
    #: Problem id, and the number of earlier records with this id: ASDiv has one question twice.
    key: tuple[str, int]
    question: str  #: The question.
    gold: str  #: The gold answer.
    cluster: str | None  #: The base problem, if several problems share one.
    groups: Mapping[str, str]  #: Groups of the problem, such as its subject and level.
    decoder_answers: Mapping[str, DecoderAnswer]  #: Answers by decoder.
    graded_samples: int  #: Number of graded samples; 0 if the gold answer is unreadable.
    correct_samples: int  #: Number of correct samples.


def read_problem_results(records: Iterable[ProblemRecord]) -> dict[str, list[ProblemResult]]:
    """Return the problem results by benchmark, in the order of the records."""
    tasks: dict[str, list[ProblemResult]] = defaultdict(list)
    for (task, problem_id, occurrence), record in key_records(records):
        tasks[task].append(_problem_result(record, (problem_id, occurrence)))
    return dict(tasks)


def key_records(
    records: Iterable[ProblemRecord],
) -> Iterator[tuple[tuple[str, str, int], ProblemRecord]]:
    """Yield each record with its key: benchmark, problem id, and number of earlier occurrences."""
    occurrences: Counter[tuple[str, str]] = Counter()
    for record in records:
        key = (record.task, record.problem_id)
        yield (*key, occurrences[key]), record
        occurrences[key] += 1


def problem_groups(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the groups of a problem, such as its subject and level."""
    return {name: str(value) for name, value in metadata.items() if name not in RESERVED_METADATA}


def _problem_result(record: ProblemRecord, key: tuple[str, int]) -> ProblemResult:
    verdicts = [sample.correct for sample in record.samples]
    graded = [verdict for verdict in verdicts if verdict is not None]
    return ProblemResult(
        task=record.task,
        key=key,
        question=record.question,
        gold=record.gold,
        cluster=record.metadata.get("cluster"),
        groups=problem_groups(record.metadata),
        decoder_answers={
            name: _decoder_answer(entry, record.cost.get(name, DecodingCost()))
            for name, entry in record.decoded.items()
        },
        graded_samples=len(graded),
        correct_samples=sum(graded),
    )


def _decoder_answer(entry: DecoderRecord, cost: DecodingCost) -> DecoderAnswer:
    return DecoderAnswer(
        status=entry.status,
        correct=entry.correct,
        strict=entry.is_strictly_correct,
        answer=entry.answer,
        cost=cost,
        has_judge_rule=entry.has_judge_rule,
    )


def problem_clusters(results: Iterable[ProblemResult]) -> list[str] | None:
    """Return the cluster of each problem; None if a problem has no cluster."""
    clusters = [result.cluster for result in results]
    return None if None in clusters else [str(cluster) for cluster in clusters]
