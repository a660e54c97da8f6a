"""Check benchmarks without any model: rows, digests, and that every gold is right about itself."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fsdpo_bench.tasks.judge import judge
from fsdpo_bench.tasks.load import Loaded, load_task
from fsdpo_bench.tasks.table import Task
from fsdpo_data.answers.comparing.equal import rule_of
from fsdpo_data.answers.reading.read import read
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.nouns import FAILED, Problem

#: Right for no gold: what a grader accepts that takes a damaged gold for an empty one, or a part
#: of an answer for the whole.
DECOYS = ("I have no idea.", "The answer is -98765432.125", "The answer is: None of these words")
#: A gold of several sentences or lines: announced in a sentence, it ends where that does, so that
#: only a box holds it whole.
_STATEMENT = re.compile(r"\n|[a-z]{2,} [a-z]{2,}|[.,] [a-z]|\.\s|[;!]")
FORMS = ("$\\boxed{{{}}}$", "The answer is: {}")  #: How a gold is answered with.


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about one gold that a reader must know."""

    row: int  #: Its row in the source, from 0.
    gold: str
    what: str
    surprise: bool  #: Whether it is new; known things are listed, but no failure.


@dataclass(frozen=True, slots=True)
class Report:
    """What was found out about one benchmark."""

    task: Task
    problems: int = 0
    golds: int = 0
    right: int = 0  #: Golds that are right about themselves, and about nothing else that was tried.
    digest: str = ""
    kinds: Mapping[str, int] = field(default_factory=dict)  #: Golds by the kind they are read as.
    findings: tuple[Finding, ...] = ()
    error: str = ""  #: Why it could not be loaded; then all counts are zero.

    @property
    def known_digest(self) -> bool:
        """Whether these are the problems that were known, if any were."""
        return self.task.digest in ("", self.digest)

    @property
    def passed(self) -> bool:
        """Whether there is nothing in it that was not known before."""
        surprises = any(finding.surprise for finding in self.findings)
        return not self.error and self.known_digest and not surprises

    def as_dict(self) -> dict[str, Any]:
        """Return it for machines."""
        told = {"task": self.task.name, "passed": self.passed, "defects": self.task.defects}
        return asdict(self) | told


def validate_task(task: Task, data: Path | None = None) -> Report:
    """Load a benchmark and check every gold of it; never raises for what the data hold."""
    try:
        loaded = load_task(task, data)
    except InputError as error:
        return Report(task, error=str(error))
    with_gold = [each for each in enumerate(loaded.problems) if each[1].answer]
    wrong = [*_not_itself(task, with_gold), *_accepts_decoys(task, with_gold)]
    findings = sorted([*_known(loaded), *wrong], key=lambda finding: finding.row)
    bad = {finding.row for finding in wrong if finding.surprise}
    kinds = Counter(rule_of(read(problem.answer)) for _, problem in with_gold)
    counts = (len(loaded.problems), len(with_gold), len(with_gold) - len(bad))
    return Report(task, *counts, loaded.digest, dict(kinds.most_common()), tuple(findings))


def _known(loaded: Loaded) -> Iterator[Finding]:
    """List missing golds, of which the table says how many there are, and golds with a note."""
    missing = [problem.answer for problem in loaded.problems].count("")
    for row, problem in enumerate(loaded.problems):
        if not problem.answer:
            told = "the source has no answer; it is left out of the score"
            yield Finding(row, "", told, surprise=missing != loaded.task.missing_golds)
        if note := loaded.task.notes.get(loaded.ids[row]):
            also = f"; {' and '.join(note.also)} also counts" if note.also else ""
            yield Finding(row, problem.answer, note.why + also, surprise=False)


def _not_itself(task: Task, golds: Sequence[tuple[int, Problem]]) -> Iterator[Finding]:
    for form in FORMS:
        items = [(problem, form.format(problem.answer)) for _, problem in golds]
        for (row, problem), judged in zip(golds, judge(task, items), strict=True):
            if {judged.verdict.status, judged.strict.status} != {"correct"}:
                said = f"answered as {form.format('…')} it is judged {judged.verdict.status}"
                announced = form is not FORMS[0] and _STATEMENT.search(problem.answer)
                yield Finding(row, problem.answer, said, surprise=not announced)


def _accepts_decoys(task: Task, golds: Sequence[tuple[int, Problem]]) -> Iterator[Finding]:
    for decoy in DECOYS:
        items = [(problem, decoy) for _, problem in golds]
        for (row, problem), judged in zip(golds, judge(task, items), strict=True):
            if judged.verdict.status not in FAILED:
                said = f"for {decoy!r} the verdict is {judged.verdict.status}"
                yield Finding(row, problem.answer, said, surprise=True)
