"""Grade and decide a run again, without its model: what it sampled is all there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fsdpo_bench.decode.decide import Row, cost_row, decide_samples, entry, verdict_row
from fsdpo_bench.decode.plan import Plan
from fsdpo_bench.decode.solution import Cost
from fsdpo_bench.runs.records import encode, open_records, read_config, read_records, record_key
from fsdpo_bench.tasks.judge import judge
from fsdpo_bench.tasks.table import Task
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.nouns import Problem
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.run import claim
from fsdpo_data.steps.rewards import check_aggregate

#: Problems graded at a time.
CHUNK = 256

_SAMPLED = re.compile(r"(sc|weighted|bon)@(\d+)(?::(\w+))?")


def regrade_run(
    source: Path,
    out: Path,
    ks: Sequence[int],
    aggregate: str | None,
    workers: int | None,
    progress: Progress,
) -> None:
    """Write a new run with the verdicts and decisions of now.

    Args:
        source: A run.
        out: Directory of the new one.
        ks: Numbers of samples to decide among; as they were if empty.
        aggregate: How step rewards become one number; as it was if None.
        workers: Processes for grading; the cores at hand if None.
        progress: Told of every batch.

    Raises:
        InputError: if there is no run, or it has fewer samples than asked for.
        RunMismatch: if ``out`` holds anything.
    """
    old = read_config(source)
    plan = _plan(source, old, ks, aggregate)
    own = [name for name in old["decoders"] if not _SAMPLED.fullmatch(name)]
    config = _config(old, plan, own)
    with claim(out, config, resume=False):
        for name, task in old["tasks"].items():
            progress.phase(name, task["problems"])
            with open_records(out, name) as lines:
                for chunk in _chunks(read_records(source, name)):
                    regraded = _regraded(_task(name, task), chunk, plan, config, workers)
                    lines.append({record_key(each): encode(each) for each in regraded})
                    progress.advance(len(chunk))


def _plan(source: Path, old: Mapping[str, Any], ks: Sequence[int], aggregate: str | None) -> Plan:
    found = [match for name in old["decoders"] if (match := _SAMPLED.fullmatch(name))]
    stored = max([int(match[2]) for match in found], default=0)
    if ks and not found:
        raise InputError(f"{source} holds no samples to decide among.", field="k", value=ks[0])
    for k in ks:
        if not 1 <= k <= stored:
            raise InputError(
                f"{source} holds {stored} samples of each problem. Use `k={stored}` or less, or "
                "run again with more.",
                field="k",
                value=k,
            )
    return Plan(
        tuple(dict.fromkeys(match[1] for match in found)),
        tuple(sorted(set(ks))) or tuple(sorted({int(match[2]) for match in found})),
        check_aggregate(aggregate or next((match[3] for match in found if match[3]), "min")),
    )


def _config(old: Mapping[str, Any], plan: Plan, own: Sequence[str]) -> dict[str, Any]:
    config = {key: value for key, value in old.items() if key != "config_digest"}
    names = plan.names if plan.decoders else []
    before = [name for name in own if name == "greedy"]
    after = [name for name in own if name != "greedy"]
    return config | {
        "grader": MathGrader().version,
        "decoders": [*before, *names, *after],
        "regraded_from": old["config_digest"],
    }


def _task(name: str, task: Mapping[str, Any]) -> Task:
    return Task(name, task["title"], tolerance=task["tolerance"])


def _chunks(records: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    chunk: list[dict[str, Any]] = []
    for record in records:
        chunk.append(record)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _regraded(
    task: Task,
    records: Sequence[dict[str, Any]],
    plan: Plan,
    config: Mapping[str, Any],
    workers: int | None,
) -> list[dict[str, Any]]:
    rows = [_solutions(record) for record in records]
    items = [
        (_problem(record), row["text"])
        for record, found in zip(records, rows, strict=True)
        for row in found
    ]
    verdicts = iter(judge(task, items, workers))
    return [
        _decided(
            record,
            [row | verdict_row(next(verdicts), tolerant=task.tolerant) for row in found],
            plan,
            config["decoders"],
        )
        for record, found in zip(records, rows, strict=True)
    ]


def _problem(record: Mapping[str, Any]) -> Problem:
    metadata = record["metadata"]
    return Problem(record["question"], record["gold"], record["task"], "test", metadata)


def _solutions(record: Mapping[str, Any]) -> list[Row]:
    """Return all texts of a record: its samples, then those that decoders made themselves."""
    return [*record["samples"], *(record["decoded"][name]["solution"] for name in _own(record))]


def _own(record: Mapping[str, Any]) -> list[str]:
    return [name for name, found in record["decoded"].items() if found["sample"] is None]


def _decided(
    record: Mapping[str, Any], rows: Sequence[Row], plan: Plan, names: Sequence[str]
) -> dict[str, Any]:
    n = len(record["samples"])
    entries, costs = decide_samples(plan, rows[:n]) if n else ({}, {})
    for name, row in zip(_own(record), rows[n:], strict=True):
        spent = record["cost"][name]
        entries[name] = entry(row, None)
        costs[name] = cost_row(Cost(spent["tokens"], spent["prm_calls"], spent["seconds"]))
    return {
        **record,
        "samples": list(rows[:n]),
        "decoded": {name: entries[name] for name in names},
        "cost": {name: costs[name] for name in names},
    }
