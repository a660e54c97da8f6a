"""Raw completions to annotated rows, one shard at a time: segment, grade, label, write.

A shard is a fixed run of problems in the order of the source, so its bytes do not depend on how
often the run was interrupted or on how many workers wrote it. Workers are processes; each holds
one shard in memory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from fsdpo_data.answers import Grader, Verdict
from fsdpo_data.answers.pool import GraderPool
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.errors import StoreError
from fsdpo_data.core.log import Span
from fsdpo_data.core.nouns import Solution
from fsdpo_data.core.sampling import solution_id
from fsdpo_data.core.workers import worker_processes
from fsdpo_data.dataset.parquet import text_bytes, write_parquet
from fsdpo_data.dataset.schema import to_table
from fsdpo_data.dataset.tally import Shard, Tally
from fsdpo_data.steps.labels import outcome_labels
from fsdpo_data.steps.segment import get_segmenter

#: Solutions in a shard, about: 10 MB of compressed parquet, 200 MB in a worker.
SHARD_SOLUTIONS = 20_000
#: Less raw text than this (bytes) is annotated in this process: starting workers takes longer.
WORTH_A_POOL = 8_000_000


@dataclass(frozen=True, slots=True)
class ShardTask:
    """What a worker needs to write one shard.

    Attributes:
        completions: The raw completions file.
        problems: (problem id, gold, span in ``completions``) in the order of the rows.
        target: Parquet file to write.
        sampling: Result of ``schema.sampling_id``.
        segmenter: Full name of the segmenter.
        grader: Full name of the grader.
    """

    completions: Path
    problems: Sequence[tuple[str, str, Span]]
    target: Path
    sampling: str
    segmenter: str
    grader: str


def annotate(tasks: Sequence[ShardTask], workers: int | None = None) -> Iterator[Shard]:
    """Write the shards, in order.

    Args:
        tasks: One task per shard.
        workers: Processes; the cores at hand if None. Small jobs run in this process.

    Raises:
        StoreError: if the disk fails or a worker is killed (most often for want of memory).
    """
    raw = sum(span[1] for task in tasks for _, _, span in task.problems)
    workers = workers or len(os.sched_getaffinity(0))
    if workers == 1 or raw < WORTH_A_POOL:
        yield from map(write_shard, tasks)
        return
    if len(tasks) < workers:
        # Grading is most of the work, so the cores share each shard.
        with GraderPool(partial(get_grader, tasks[0].grader), workers) as pool:
            yield from (write_shard(task, pool) for task in tasks)
        return
    with worker_processes(workers) as pool:
        try:
            yield from pool.map(write_shard, tasks)
        except BrokenProcessPool as error:
            raise StoreError(
                "A worker that was writing the dataset died, most likely for want of memory. "
                "Nothing sealed is lost: run again with `resume=True` and fewer `workers`."
            ) from error


def write_shard(task: ShardTask, grader: Grader | None = None) -> Shard:
    """Segment, grade and label the samples of some problems, and write them as one file.

    Args:
        task: What to write.
        grader: Does the grading; one of this process if None.
    """
    _, segment = get_segmenter(task.segmenter)
    records = list(_records(task))
    judged = iter((grader or get_grader(task.grader)).grade(_pairs(records)))
    solutions: list[Solution] = []
    tally, texts = Tally(), hashlib.sha256()
    for problem_id, _, record in records:
        samples = record["completions"]
        verdicts = list(islice(judged, len(samples)))
        for index, (sample, verdict) in enumerate(zip(samples, verdicts, strict=True)):
            steps = segment(sample["text"])
            solutions.append(
                Solution(
                    solution_id(problem_id, task.sampling, index),
                    problem_id,
                    index,
                    record["prompt"],
                    steps,
                    sample["finish_reason"],
                    sample["n_tokens"],
                    verdict.answer,
                    verdict.status,
                    outcome_labels(verdict.status, len(steps)),
                )
            )
            texts.update(text_bytes(sample["text"]))
        tally.add(_tally(samples, verdicts, solutions[-len(samples) :]))
    write_parquet(to_table("solutions", solutions), task.target)
    return Shard(task.target, len(solutions), texts.hexdigest(), tally)


def _records(task: ShardTask) -> Iterator[tuple[str, str, dict[str, Any]]]:
    with task.completions.open("rb") as file:
        for problem_id, gold, (start, length) in task.problems:
            file.seek(start)
            yield problem_id, gold, orjson.loads(file.read(length))


def _pairs(records: Sequence[tuple[str, str, dict[str, Any]]]) -> list[tuple[str, str]]:
    return [(gold, each["text"]) for _, gold, record in records for each in record["completions"]]


def _tally(
    samples: Sequence[dict[str, Any]], verdicts: Sequence[Verdict], solutions: Sequence[Solution]
) -> Tally:
    """Count the samples of one problem."""
    tally = Tally(
        tokens=sum(sample["n_tokens"] for sample in samples),
        seconds=sum(sample["seconds"] for sample in samples),
        truncated=sum(sample["finish_reason"] == "length" for sample in samples),
        unique=len({sample["text"] for sample in samples}),
    )
    tally.add_verdicts(verdicts, [len(each.completions) for each in solutions])
    return tally
