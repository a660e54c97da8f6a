"""What statistics need of a record: verdicts, costs and its groups, not its texts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: Metadata by which accuracy is not broken down.
NO_GROUPS = ("cluster", "also")
#: What a decoder costs, as summed over problems.
COSTS = ("tokens", "prm_calls", "seconds")

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Decoded:
    """One decoder's answer to one problem.

    Attributes:
        status: The grader's; ``timed_out`` counts as wrong, ``gold_unparsed`` does not count.
        correct: Whether it counts as correct; None if the problem does not count.
        strict: The same without any tolerance.
        answer: As extracted; None if there is none.
        cost: Tokens, PRM calls and seconds.
    """

    status: str
    correct: bool | None
    strict: bool | None
    answer: str | None
    cost: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Facts:
    """One problem of a run.

    Attributes:
        task: Name of the benchmark.
        key: Id of the problem and how often it came before in this benchmark: one question of
            ASDiv is there twice.
        question: Its text.
        gold: Its gold answer.
        cluster: The base problem it shares with others, if it does.
        groups: Its subject and level, where the benchmark has them.
        decoded: By decoder.
        samples: Graded samples; 0 if the gold cannot be read.
        right: How many of them are correct.
    """

    task: str
    key: tuple[str, int]
    question: str
    gold: str
    cluster: str | None
    groups: Mapping[str, str]
    decoded: Mapping[str, Decoded]
    samples: int
    right: int


def read_facts(records: Iterable[Record]) -> list[Facts]:
    """Take the facts from records, in order."""
    seen: dict[tuple[str, str], int] = defaultdict(int)
    facts = []
    for record in records:
        name = (record["task"], record["problem_id"])
        facts.append(_facts(record, (name[1], seen[name])))
        seen[name] += 1
    return facts


def groups_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the groups that a problem belongs to, such as its subject and level."""
    return {name: str(value) for name, value in metadata.items() if name not in NO_GROUPS}


def _facts(record: Record, key: tuple[str, int]) -> Facts:
    metadata = record["metadata"]
    verdicts = [sample["correct"] for sample in record["samples"]]
    graded = [verdict for verdict in verdicts if verdict is not None]
    return Facts(
        record["task"],
        key,
        record["question"],
        record["gold"],
        metadata.get("cluster"),
        groups_of(metadata),
        {
            name: _decoded(each, record["cost"].get(name, {}))
            for name, each in record["decoded"].items()
        },
        len(graded),
        sum(graded),
    )


def _decoded(each: Record, cost: Mapping[str, float]) -> Decoded:
    correct = each["correct"]
    return Decoded(
        each["status"],
        correct,
        each.get("strict", correct),
        each["answer"],
        {name: cost.get(name, 0) for name in COSTS},
    )


def by_task(facts: Iterable[Facts]) -> dict[str, list[Facts]]:
    """Group facts by benchmark, in the order met."""
    tasks: dict[str, list[Facts]] = defaultdict(list)
    for each in facts:
        tasks[each.task].append(each)
    return dict(tasks)


def clusters_of(facts: Iterable[Facts]) -> list[str] | None:
    """Return the cluster of each problem, None if they are independent."""
    clusters = [each.cluster for each in facts]
    return None if None in clusters else [str(cluster) for cluster in clusters]
