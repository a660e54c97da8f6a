"""Grade and decide what a run has sampled: at once, or later again, without its model."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from fsdpo_bench.decode.plan import DecodingPlan
from fsdpo_bench.decode.vote import Row, decide, verdict_row
from fsdpo_bench.runs.records import (
    open_records,
    own_decoders,
    read_config,
    read_records,
    record_key,
)
from fsdpo_bench.tasks.grade import grade_task_responses
from fsdpo_bench.tasks.table import Task
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.jsonl_log import encode_line
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.run import lock_run_directory
from fsdpo_data.steps.rewards import check_aggregate

CHUNK = 256  #: Problems graded at a time.

_SAMPLED = re.compile(r"(sc|weighted|bon)@([1-9]\d{0,8})(?::(\w+))?")


def regrade_run(
    source: Path,
    out: Path,
    ks: Sequence[int],
    aggregate: str | None,
    workers: int | None,
    progress: Progress,
    *,
    resume: bool = False,
) -> None:
    """Write a new run with the verdicts and decisions of now.

    Without ``ks``, the numbers of samples to decide among, and without ``aggregate`` these are as
    they were.

    Raises:
        InputError: if there is no run, or it has fewer samples than asked for.
        RunMismatchError: if ``out`` holds anything else.
    """
    old = read_config(source)
    plan = _plan(source, old, ks, aggregate)
    config = _config(old, plan)
    with lock_run_directory(out, config, resume=resume):
        for name, task in old["tasks"].items():
            with open_records(out, name) as lines:
                progress.phase(name, task["problems"], done=len(lines.line_spans))
                read = read_records(source, name)
                owed = (each for each in read if record_key(each) not in lines.line_spans)
                known = Task(name, task["title"], tolerance=task["tolerance"])
                while chunk := list(islice(owed, CHUNK)):
                    regraded = grade_records(known, chunk, plan, config["decoders"], workers)
                    lines.append({record_key(each): encode_line(each) for each in regraded})
                    progress.advance(len(chunk))


def _plan(
    source: Path, old: Mapping[str, Any], ks: Sequence[int], aggregate: str | None
) -> DecodingPlan:
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
    return DecodingPlan(
        tuple(dict.fromkeys(match[1] for match in found)),
        tuple(sorted(set(ks or (int(match[2]) for match in found)))),
        check_aggregate(aggregate or next((match[3] for match in found if match[3]), "min")),
    )


def _config(old: Mapping[str, Any], plan: DecodingPlan) -> dict[str, Any]:
    own = [name for name in old["decoders"] if not _SAMPLED.fullmatch(name)]
    kept: dict[str, Any] = json.loads(encode_line(old))  # without lone surrogates
    del kept["config_digest"]
    return kept | {
        "grader": MathGrader().version,
        "decoders": sorted([*plan.names, *own], key="greedy".__ne__),  # greedy stands first
        "regraded_from": old["config_digest"],
    }


def grade_records(
    task: Task,
    records: Sequence[Row],
    plan: DecodingPlan,
    names: Sequence[str],
    workers: int | None,
) -> list[Row]:
    """Return records with verdicts on what they hold, and what decoders called ``names`` decide.

    Raises:
        InputError: if a record lacks what they need.
    """
    # Samples, then what decoders made themselves.
    solutions = [
        [*each["samples"], *(each["decoded"][name]["solution"] for name in own_decoders(each))]
        for each in records
    ]
    problems = [
        Problem(each["question"], each["gold"], each["task"], "test", each["metadata"])
        for each in records
    ]
    items = [
        (problem, row["text"], row["finish_reason"], record["prompt"])
        for problem, record, found in zip(problems, records, solutions, strict=True)
        for row in found
    ]
    regraded, judged = [], iter(grade_task_responses(task, items, workers))
    for record, found in zip(records, solutions, strict=True):
        own, n = own_decoders(record), len(record["samples"])
        asked = [name for name in names if not _SAMPLED.fullmatch(name)]
        if {*asked} != {*own} or not {*own} <= {*record["cost"]} or n < plan.samples:
            raise InputError(
                f"problem {record['problem_id']} of {record['task']} lacks what the run's config "
                "says of it. Expected what `fsdpo-bench run` wrote."
            )
        rows = [row | verdict_row(task, next(judged)) for row in found]
        costs = {name: record["cost"][name] for name in own}
        regraded.append(record | decide(plan, names, rows, costs))
    return regraded
