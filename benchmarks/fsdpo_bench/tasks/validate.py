"""Check benchmarks without any model: rows, digests, and that every gold is right about itself."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fsdpo_bench.tasks.grade import grade_task_responses
from fsdpo_bench.tasks.load import LoadedTask, load_task
from fsdpo_bench.tasks.table import Task
from fsdpo_data.answers.comparison.equivalence import comparison_rule
from fsdpo_data.answers.parsing.read import read
from fsdpo_data.core.entities import MODEL_FAILURES, Problem
from fsdpo_data.core.errors import InputError

#: Right for no gold: what a grader accepts that takes a damaged gold for an empty one, or a part
#: of an answer for the whole.
DECOYS = ("I have no idea.", "The answer is -98765432.125", "The answer is: None of these words")
#: A gold of several sentences or lines: announced in a sentence, it ends where that does, so that
#: only a box holds it whole.
_STATEMENT = re.compile(r"\n|[a-z]{2,} [a-z]{2,}|[.,] [a-z]|\.\s|[;!]")
ANSWER_WRAPPERS = ("$\\boxed{{{}}}$", "The answer is: {}")  #: How a gold is answered with.


@dataclass(frozen=True, slots=True)
class GoldFinding:
    """Something about one gold that a reader must know."""

    row: int  #: Its row in the source, from 0.
    gold: str
    what: str
    is_unexpected: bool  #: Whether it is new; known things are listed, but no failure.


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What was found out about one benchmark."""

    task: Task
    problems: int = 0
    golds: int = 0
    right: int = 0  #: Golds that are right about themselves, and about nothing else that was tried.
    digest: str = ""
    kinds: Mapping[str, int] = field(default_factory=dict)  #: Golds by the kind they are read as.
    findings: tuple[GoldFinding, ...] = ()
    error: str = ""  #: Why it could not be loaded; then all counts are zero.

    @property
    def known_digest(self) -> bool:
        """Whether these are the problems that were known, if any were."""
        return self.task.digest in ("", self.digest)

    @property
    def passed(self) -> bool:
        """Whether there is nothing in it that was not known before."""
        surprises = any(finding.is_unexpected for finding in self.findings)
        return not self.error and self.known_digest and not surprises

    def as_dict(self) -> dict[str, Any]:
        """Return it for machines."""
        told = {"task": self.task.name, "passed": self.passed, "defects": self.task.defects}
        return asdict(self) | told


def validate_task(task: Task, data: Path | None = None) -> TaskReport:
    """Load a benchmark and check every gold of it; never raises for what the data hold."""
    try:
        loaded = load_task(task, data)
    except InputError as error:
        return TaskReport(task, error=str(error))
    with_gold = [each for each in enumerate(loaded.problems) if each[1].answer]
    wrong = [*_not_itself(task, with_gold), *_accepts_decoys(task, with_gold)]
    findings = sorted([*_documented_findings(loaded), *wrong], key=lambda finding: finding.row)
    bad = {finding.row for finding in wrong if finding.is_unexpected}
    kinds = Counter(comparison_rule(read(problem.answer)) for _, problem in with_gold)
    counts = (len(loaded.problems), len(with_gold), len(with_gold) - len(bad))
    return TaskReport(task, *counts, loaded.digest, dict(kinds.most_common()), tuple(findings))


def _documented_findings(loaded: LoadedTask) -> Iterator[GoldFinding]:
    """List missing golds, of which the table says how many there are, and golds with a note."""
    missing = [problem.answer for problem in loaded.problems].count("")
    for row, problem in enumerate(loaded.problems):
        if not problem.answer:
            told = "the source has no answer; it is left out of the score"
            yield GoldFinding(row, "", told, is_unexpected=missing != loaded.task.missing_golds)
        if note := loaded.task.notes.get(loaded.ids[row]):
            also = (
                f"; {' and '.join(note.alternative_golds)} also counts"
                if note.alternative_golds
                else ""
            )
            yield GoldFinding(row, problem.answer, note.reason + also, is_unexpected=False)


def _not_itself(task: Task, golds: Sequence[tuple[int, Problem]]) -> Iterator[GoldFinding]:
    for form in ANSWER_WRAPPERS:
        items = [(problem, form.format(problem.answer)) for _, problem in golds]
        for (row, problem), judged in zip(golds, grade_task_responses(task, items), strict=True):
            if {judged.verdict.status, judged.strict.status} != {"correct"}:
                said = f"answered as {form.format('…')} it is judged {judged.verdict.status}"
                announced = form is not ANSWER_WRAPPERS[0] and _STATEMENT.search(problem.answer)
                yield GoldFinding(row, problem.answer, said, is_unexpected=not announced)


def _accepts_decoys(task: Task, golds: Sequence[tuple[int, Problem]]) -> Iterator[GoldFinding]:
    for decoy in DECOYS:
        items = [(problem, decoy) for _, problem in golds]
        for (row, problem), judged in zip(golds, grade_task_responses(task, items), strict=True):
            if judged.verdict.status not in MODEL_FAILURES:
                said = f"for {decoy!r} the verdict is {judged.verdict.status}"
                yield GoldFinding(row, problem.answer, said, is_unexpected=True)
