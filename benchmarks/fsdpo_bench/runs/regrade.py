"""Grade the solutions of a run and apply the decoders, in the run or later without the model."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from fsdpo_bench.decode.plan import DecodingPlan
from fsdpo_bench.decode.vote import JsonObject, apply_decoders, verdict_row
from fsdpo_bench.runs.records import (
    open_records,
    own_decoders,
    read_config,
    read_records,
    record_key,
)
from fsdpo_bench.tasks.grade import TaskResponse, TaskVerdict, grade_task_responses
from fsdpo_bench.tasks.table import Task
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.jsonl_log import encode_line
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.run import lock_run_directory
from fsdpo_data.steps.rewards import check_aggregate

CHUNK_PROBLEMS = 256  #: Number of problems to grade at a time.

#: Names of results that choose one of K samples: decoder, K and aggregate.
_SAMPLED_NAME = re.compile(r"(sc|weighted|bon)@([1-9]\d{0,8})(?::(\w+))?")


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
    """Write a new run with the solutions of a run, and with verdicts of the current grader.

    Args:
        source: The run to grade again.
        out: Directory of the new run.
        ks: Numbers of samples to choose from; by default those of the old run.
        aggregate: Name of the aggregate of step rewards; by default that of the old run.
        workers: Number of grading processes.
        progress: Progress bar.
        resume: Whether to continue an interrupted run in ``out``.

    Raises:
        InputError: if ``source`` is not a run, or has fewer samples than a K.
        RunMismatchError: if ``out`` contains another run.
    """
    old_config = read_config(source)
    plan = _make_plan(source, old_config, ks, aggregate)
    config = _make_config(old_config, plan)
    with lock_run_directory(out, config, resume=resume):
        for name, entry in old_config["tasks"].items():
            task = Task(name=name, title=entry["title"], tolerance=entry["tolerance"])
            with open_records(out, name) as log:
                finished_keys = log.line_spans
                progress.phase(name, entry["problems"], done=len(finished_keys))
                missing_records = (
                    record
                    for record in read_records(source, name)
                    if record_key(record) not in finished_keys
                )
                while chunk := list(islice(missing_records, CHUNK_PROBLEMS)):
                    regraded = grade_records(
                        task,
                        chunk,
                        plan=plan,
                        result_names=config["decoders"],
                        workers=workers,
                    )
                    log.append({record_key(record): encode_line(record) for record in regraded})
                    progress.advance(len(chunk))


def _make_plan(
    source: Path, old_config: Mapping[str, Any], ks: Sequence[int], aggregate: str | None
) -> DecodingPlan:
    """Return the sample decoders of the old run, with new values of K and the aggregate."""
    matches = [match for name in old_config["decoders"] if (match := _SAMPLED_NAME.fullmatch(name))]
    old_ks = [int(match[2]) for match in matches]
    n_samples = max(old_ks, default=0)
    if ks and not matches:
        raise InputError(
            f"{source} contains no samples to choose from. Remove `k`.", field="k", value=ks[0]
        )
    for k in ks:
        if not 1 <= k <= n_samples:
            raise InputError(
                f"{source} contains {n_samples} samples of each problem. Use `k={n_samples}` or "
                "less, or run the benchmark again with more samples.",
                field="k",
                value=k,
            )
    old_aggregate = next((match[3] for match in matches if match[3]), "min")
    return DecodingPlan(
        decoders=tuple(dict.fromkeys(match[1] for match in matches)),
        ks=tuple(sorted(set(ks or old_ks))),
        aggregate=check_aggregate(aggregate or old_aggregate),
    )


def _make_config(old_config: Mapping[str, Any], plan: DecodingPlan) -> dict[str, Any]:
    """Return the config of the new run, with the grader, the decoders and the old digest."""
    own_names = [name for name in old_config["decoders"] if not _SAMPLED_NAME.fullmatch(name)]
    # The round trip through JSON removes lone surrogates.
    config: dict[str, Any] = json.loads(encode_line(old_config))
    del config["config_digest"]
    return config | {
        "grader": MathGrader().version,
        # "greedy" comes first; the sort is stable, so the other names keep their order.
        "decoders": sorted([*plan.result_names, *own_names], key=lambda name: name != "greedy"),
        "regraded_from": old_config["config_digest"],
    }


def grade_records(
    task: Task,
    records: Sequence[JsonObject],
    plan: DecodingPlan,
    result_names: Sequence[str],
    workers: int | None,
) -> list[JsonObject]:
    """Return the records with new verdicts and decoder answers.

    Args:
        task: The benchmark of the records.
        records: Records with solutions.
        plan: The decoders that choose from samples.
        result_names: Names of all results of the run.
        workers: Number of grading processes.

    Raises:
        InputError: if a record lacks solutions or costs of a result.
    """
    responses = [response for record in records for response in _responses(record)]
    verdicts = iter(grade_task_responses(task, responses, workers))
    own_result_names = {name for name in result_names if not _SAMPLED_NAME.fullmatch(name)}
    regraded = []
    for record in records:
        own_names = own_decoders(record)
        has_own_costs = record["cost"].keys() >= set(own_names)
        has_samples = len(record["samples"]) >= plan.n_samples
        if own_result_names != set(own_names) or not has_own_costs or not has_samples:
            raise InputError(
                f"problem {record['problem_id']} of {record['task']} lacks solutions or costs that "
                "the config of the run lists. Expected a record that `fsdpo-bench run` wrote."
            )
        own_costs = {name: record["cost"][name] for name in own_names}
        solutions = _grade_solutions(task, _solutions(record), verdicts)
        regraded.append(
            record
            | apply_decoders(plan, names=result_names, solutions=solutions, own_costs=own_costs)
        )
    return regraded


def _solutions(record: JsonObject) -> list[JsonObject]:
    """Return the samples of a record, followed by the solutions of its other decoders."""
    own_solutions = [record["decoded"][name]["solution"] for name in own_decoders(record)]
    return [*record["samples"], *own_solutions]


def _responses(record: JsonObject) -> list[TaskResponse]:
    """Return the solutions of a record as responses to its problem."""
    problem = Problem(
        question=record["question"],
        answer=record["gold"],
        source=record["task"],
        split="test",
        metadata=record["metadata"],
    )
    return [
        TaskResponse(
            problem=problem,
            text=solution["text"],
            finish_reason=solution["finish_reason"],
            prompt=record["prompt"],
        )
        for solution in _solutions(record)
    ]


def _grade_solutions(
    task: Task, solutions: Sequence[JsonObject], verdicts: Iterator[TaskVerdict]
) -> list[JsonObject]:
    """Return the solutions with the next verdicts of the iterator."""
    return [solution | verdict_row(task, next(verdicts)) for solution in solutions]
