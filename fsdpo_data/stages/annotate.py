"""Raw completions to annotated rows, one shard at a time: segment, grade, label, write.

A shard is a fixed run of problems in the order of the source, so its bytes do not depend on how
often the run was interrupted or on how many workers wrote it. Workers are processes; each holds
one shard in memory.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from fsdpo_data.answers import Grader
from fsdpo_data.answers.pool import GraderPool
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.entities import Solution
from fsdpo_data.core.errors import StoreError
from fsdpo_data.core.jsonl_log import LineSpan, read_spans
from fsdpo_data.core.sampling import solution_id
from fsdpo_data.core.workers import worker_processes
from fsdpo_data.dataset.manifest_sections import FileEntry
from fsdpo_data.dataset.run import COMPLETIONS_FILE
from fsdpo_data.dataset.schema import digest_bytes, to_table, write_parquet
from fsdpo_data.dataset.tally import Tally
from fsdpo_data.models.thinking import find_thinking
from fsdpo_data.stages.grade import GradingInput, grade_responses
from fsdpo_data.steps.rewards import outcome_labels
from fsdpo_data.steps.segment import segmenter_name, split_steps

#: Solutions in a shard, about: 10 MB of compressed parquet, 200 MB in a worker.
SHARD_SOLUTIONS = 20_000
#: Less raw text than this (bytes) is annotated in this process: starting workers takes longer.
MIN_BYTES_FOR_POOL = 8_000_000


@dataclass(frozen=True, slots=True)
class ShardTask:
    """What a worker needs to write one shard."""

    root: Path
    path: str  #: Parquet file to write there.
    #: (problem id, gold, span in the raw completions) in the order of the rows.
    problems: Sequence[tuple[str, str, LineSpan]]
    sampling: str  #: Result of :func:`~fsdpo_data.core.sampling.sampling_id`.
    segmenter: str
    grader: str
    grade_thinking: bool = False  #: Whether thinking that never ends may hold the answer.


def annotate(
    tasks: Sequence[ShardTask], workers: int | None = None
) -> Iterator[tuple[FileEntry, Tally]]:
    """Write the shards, in order; yield each file and its counts.

    Small jobs run in this process, whatever ``workers``; those are the cores at hand if None.

    Raises:
        StoreError: if the disk fails or a worker is killed (most often for want of memory).
    """
    raw = sum(span[1] for task in tasks for _, _, span in task.problems)
    workers = workers or len(os.sched_getaffinity(0))
    if workers == 1 or raw < MIN_BYTES_FOR_POOL:
        yield from map(write_shard, tasks)
    elif len(tasks) < workers:
        # Grading is most of the work, so the cores share each shard.
        with GraderPool(partial(get_grader, tasks[0].grader), workers) as pool:
            yield from (write_shard(task, pool) for task in tasks)
    else:
        with worker_processes(workers) as processes:
            try:
                yield from processes.map(write_shard, tasks)
            except BrokenProcessPool as error:
                raise StoreError(
                    "A worker that was writing the dataset died, most likely for want of memory. "
                    "Nothing sealed is lost: run again with `resume=True` and fewer `workers`."
                ) from error


def write_shard(task: ShardTask, grader: Grader | None = None) -> tuple[FileEntry, Tally]:
    """Segment, grade and label the samples of some problems, and write them as one file."""
    segmenter = segmenter_name(task.segmenter)
    spans = [span for _, _, span in task.problems]
    records = list(read_spans(task.root / COMPLETIONS_FILE, spans))
    responses: list[GradingInput] = [
        (
            gold,
            find_thinking(
                record["prompt"], sample["text"], has_separate_reasoning="reasoning" in sample
            ),
            sample["text"],
            sample["finish_reason"],
        )
        for (_, gold, _), record in zip(task.problems, records, strict=True)
        for sample in record["completions"]
    ]
    verdicts = grade_responses(
        grader or get_grader(task.grader), responses, whole=task.grade_thinking
    )
    judged = zip(responses, verdicts, strict=True)
    solutions: list[Solution] = []
    tally, texts = Tally(), hashlib.sha256()
    for (problem_id, _, _), record in zip(task.problems, records, strict=True):
        samples = record["completions"]
        found = list(islice(judged, len(samples)))
        for index, (sample, ((_, thought, text, ended), verdict)) in enumerate(
            zip(samples, found, strict=True)
        ):
            steps = split_steps(text, thought.end, segmenter)
            solutions.append(
                Solution(
                    solution_id(problem_id, task.sampling, index),
                    problem_id,
                    index,
                    record["prompt"],
                    steps,
                    ended,
                    sample["n_tokens"],
                    verdict.answer,
                    verdict.status,
                    outcome_labels(verdict.status, len(steps)),
                    thinking_closed=thought.closed,
                    thinking_tokens=sample.get("thinking_tokens"),
                )
            )
            texts.update(digest_bytes(text))
        own = solutions[-len(samples) :]
        tally.add_verdicts([verdict for _, verdict in found], [len(s.completions) for s in own])
        tally.add_thinking(own)
        tally.add_sampling_cost(samples)
    write_parquet(to_table("solutions", solutions), task.root / task.path)
    entry = FileEntry.from_file(task.root, task.path, len(solutions), texts.hexdigest())
    return entry, tally
