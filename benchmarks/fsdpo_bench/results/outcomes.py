"""What statistics need of a record: verdicts, costs and its groups, not its texts."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fsdpo_bench.tasks.table import RESERVED_METADATA
from fsdpo_data.core.sampling import UNKNOWN

COSTS = ("tokens", "prm_calls", "seconds")  #: What a decoder costs, as summed over problems.

Record = Mapping[str, Any]
Amount = float | str  #: What is counted; tokens may be :data:`~fsdpo_data.core.sampling.UNKNOWN`.


@dataclass(frozen=True, slots=True)
class DecoderAnswer:
    """One decoder's answer to one problem."""

    status: str  #: The grader's; ``timed_out`` counts as wrong, ``gold_unparsed`` does not count.
    correct: bool | None  #: Whether it counts as correct; None if the problem does not count.
    strict: bool | None
    answer: str | None
    cost: Mapping[str, Amount]


@dataclass(frozen=True, slots=True)
class ProblemResult:
    """One problem of a run."""

    task: str
    #: Id of the problem and how often it came before in this benchmark: one question of ASDiv is
    #: there twice.
    key: tuple[str, int]
    question: str
    gold: str
    cluster: str | None  #: The base problem it shares with others, if it does.
    groups: Mapping[str, str]
    decoded: Mapping[str, DecoderAnswer]
    samples: int  #: Graded samples; 0 if the gold cannot be read.
    right: int


def read_problem_results(records: Iterable[Record]) -> dict[str, list[ProblemResult]]:
    """Take the facts from records, by benchmark, in order."""
    tasks: dict[str, list[ProblemResult]] = defaultdict(list)
    for (task, problem, before), record in key_records(records):
        tasks[task].append(_problem_result(record, (problem, before)))
    return dict(tasks)


def key_records(records: Iterable[Record]) -> Iterator[tuple[tuple[str, str, int], Record]]:
    """Yield records by benchmark, problem, and how often that came before."""
    seen: Counter[tuple[str, str]] = Counter()
    for record in records:
        name = (record["task"], record["problem_id"])
        yield (*name, seen[name]), record
        seen[name] += 1


def groups_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the groups that a problem belongs to, such as its subject and level."""
    return {name: str(value) for name, value in metadata.items() if name not in RESERVED_METADATA}


def total(amounts: Iterable[Amount]) -> Amount:
    """Add what was counted; unknown if any of it is."""
    found = list(amounts)
    known = [each for each in found if not isinstance(each, str)]
    return round(sum(known), 3) if len(known) == len(found) else UNKNOWN


def _problem_result(record: Record, key: tuple[str, int]) -> ProblemResult:
    metadata = record["metadata"]
    verdicts = [sample["correct"] for sample in record["samples"]]
    graded = [verdict for verdict in verdicts if verdict is not None]
    decoded = {}
    for name, each in record["decoded"].items():
        spent, correct = record["cost"].get(name, {}), each["correct"]
        cost = {what: spent.get(what, 0) for what in COSTS}
        if cost["tokens"] is None:
            cost["tokens"] = UNKNOWN
        strict = each.get("strict", correct)
        decoded[name] = DecoderAnswer(each["status"], correct, strict, each["answer"], cost)
    asked = (record["task"], key, record["question"], record["gold"])
    groups = (metadata.get("cluster"), groups_of(metadata))
    return ProblemResult(*asked, *groups, decoded, len(graded), sum(graded))


def clusters_of(facts: Iterable[ProblemResult]) -> list[str] | None:
    """Return the cluster of each problem, None if they are independent."""
    clusters = [each.cluster for each in facts]
    return None if None in clusters else [str(cluster) for cluster in clusters]
