"""Check benchmarks without a model: the digest, and the grading of every gold."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fsdpo_bench.tasks.load import LoadedTask, load_task
from fsdpo_bench.tasks.table import Task
from verdicts import grade_requests

from fsdpo_data.answers.comparison.equivalence import comparison_rule
from fsdpo_data.answers.parsing.read import read
from fsdpo_data.core.entities import MODEL_FAILURES, UNDECIDED, Problem
from fsdpo_data.problems.golds import describe_solutions, is_solution
from fsdpo_data.stages.verdicts import grading_request

#: Responses that are wrong for every gold. A grader accepts them if it reads a damaged gold as
#: empty, or compares only a part of the answer.
DECOYS = ("I have no idea.", "The answer is -98765432.125", "The answer is: None of these words")
#: Golds with several sentences or lines. Without a box, an answer ends with its sentence, so only a
#: box can contain such a gold.
_STATEMENT = re.compile(r"\n|[a-z]{2,} [a-z]{2,}|[.,] [a-z]|\.\s|[;!]")
_BOXED_WRAPPER = "$\\boxed{{{}}}$"
ANSWER_WRAPPERS = (_BOXED_WRAPPER, "The answer is: {}")  #: Responses that state a gold.


@dataclass(frozen=True, slots=True)
class GoldFinding:
    """A remark about one gold answer."""

    row: int  #: Row of the problem in the source, from 0.
    gold: str  #: The gold answer; empty if it is missing.
    description: str  #: The remark.
    is_unexpected: bool  #: Whether the finding is undocumented, so that the check fails.


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The result of the check of one benchmark."""

    task: Task  #: The benchmark.
    problems: int = 0  #: Number of problems.
    golds: int = 0  #: Number of problems with a gold answer.
    right: int = 0  #: Number of golds that match themselves and none of the decoys.
    digest: str = ""  #: Digest of the loaded problems.
    kinds: Mapping[str, int] = field(default_factory=dict)  #: Number of golds by comparison rule.
    findings: tuple[GoldFinding, ...] = ()  #: Remarks, in the order of rows.

    @property
    def has_known_digest(self) -> bool:
        """Whether the problems have the digest of the benchmark's table, if it has one."""
        return self.task.digest in ("", self.digest)

    @property
    def has_passed(self) -> bool:
        """Whether the benchmark has the known digest and no unexpected findings."""
        has_unexpected = any(finding.is_unexpected for finding in self.findings)
        return self.has_known_digest and not has_unexpected


def check_golds(task: Task, data: Path | None = None) -> TaskReport:
    """Load a benchmark, and check every gold."""
    loaded = load_task(task, data)
    with_gold = [(row, problem) for row, problem in enumerate(loaded.problems) if problem.answer]
    wrong = [*_find_rejected_golds(with_gold), *_find_accepted_decoys(with_gold)]
    findings = sorted([*_documented_findings(loaded), *wrong], key=lambda finding: finding.row)
    if solutions := describe_solutions([problem.answer for _, problem in with_gold]):
        first_row, first_problem = next(
            entry for entry in with_gold if is_solution(entry[1].answer)
        )
        findings.append(
            GoldFinding(
                row=first_row,
                gold=first_problem.answer,
                description=solutions,
                is_unexpected=True,
            )
        )
    failed_rows = {finding.row for finding in wrong if finding.is_unexpected}
    kinds = Counter(comparison_rule(read(problem.answer)) for _, problem in with_gold)
    return TaskReport(
        task=task,
        problems=len(loaded.problems),
        golds=len(with_gold),
        right=len(with_gold) - len(failed_rows),
        digest=loaded.digest,
        kinds=dict(kinds.most_common()),
        findings=tuple(findings),
    )


def _documented_findings(loaded: LoadedTask) -> Iterator[GoldFinding]:
    """Yield missing golds and corrected golds.

    Missing golds are unexpected if the benchmark's table states another number of them.
    """
    n_missing = [problem.answer for problem in loaded.problems].count("")
    for row, problem in enumerate(loaded.problems):
        if not problem.answer:
            yield GoldFinding(
                row=row,
                gold="",
                description="the source has no answer; it is left out of the score",
                is_unexpected=n_missing != loaded.task.missing_golds,
            )
        note = loaded.task.notes.get(loaded.ids[row])
        if note:
            description = note.reason
            if note.alternative_golds:
                description += f"; {' and '.join(note.alternative_golds)} also counts"
            yield GoldFinding(
                row=row, gold=problem.answer, description=description, is_unexpected=False
            )


def _find_rejected_golds(golds: Sequence[tuple[int, Problem]]) -> Iterator[GoldFinding]:
    """Yield the golds that are not graded as correct when a response states them."""
    for wrapper in ANSWER_WRAPPERS:
        verdicts = grade_requests(
            [grading_request(problem, wrapper.format(problem.answer)) for _, problem in golds]
        )
        for (row, problem), verdict in zip(golds, verdicts, strict=True):
            status = verdict.status
            if status == "correct" and verdict.exactly_correct is not False:
                continue
            is_boxed = wrapper is _BOXED_WRAPPER
            is_documented = not is_boxed and _STATEMENT.search(problem.answer) is not None
            yield GoldFinding(
                row=row,
                gold=problem.answer,
                description=f"answered as {wrapper.format('…')} it is graded {status}",
                is_unexpected=not is_documented,
            )


def _find_accepted_decoys(golds: Sequence[tuple[int, Problem]]) -> Iterator[GoldFinding]:
    """Yield the golds for which a decoy is graded as correct, or is not graded.

    A gold that the grader does not read leaves a decoy undecided.
    """
    for decoy in DECOYS:
        verdicts = grade_requests([grading_request(problem, decoy) for _, problem in golds])
        for (row, problem), verdict in zip(golds, verdicts, strict=True):
            status = verdict.status
            if status not in (*MODEL_FAILURES, UNDECIDED):
                yield GoldFinding(
                    row=row,
                    gold=problem.answer,
                    description=f"for {decoy!r} the verdict is {status}",
                    is_unexpected=True,
                )
