"""Write the completions of a run as solutions: split into steps and graded, shard by shard.

A shard is a fixed range of problems in the order of the source. Its bytes therefore do not depend
on interruptions or on the number of workers. Workers are processes, and each has one shard in
memory.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from fsdpo_data.answers import Grader, GradingRequest
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.completion_records import CompletionRecord, read_records
from fsdpo_data.core.cost import Cost
from fsdpo_data.core.entities import NO_VERDICT, UNGRADED, Problem, Solution
from fsdpo_data.core.errors import StoreError
from fsdpo_data.core.jsonl_log import LineSpan
from fsdpo_data.core.sampling import Completion, solution_id
from fsdpo_data.core.workers import worker_processes
from fsdpo_data.dataset.manifest import FileEntry
from fsdpo_data.dataset.run_directory import COMPLETIONS_FILE
from fsdpo_data.dataset.schema import digest_bytes, to_table, write_parquet
from fsdpo_data.dataset.stage_records import NO_GRADER
from fsdpo_data.grading.pool import GraderPool
from fsdpo_data.models.thinking_format import ThinkingFormat
from fsdpo_data.stages.verdicts import grading_request, mark_truncated_thinking, with_verdicts
from fsdpo_data.steps.segment import split_at_lengths, split_steps

#: Maximum number of solutions per shard: 10 MB of compressed parquet, 200 MB of memory in a worker.
SHARD_SOLUTIONS = 20_000
#: Below this size of raw text, starting workers takes longer than the work in this process.
MIN_BYTES_FOR_POOL = 8_000_000


@dataclass(frozen=True, slots=True)
class ShardTask:
    """Everything that a worker needs to write one shard."""

    root: Path  #: Directory of the dataset.
    path: str  #: Parquet file to write, relative to ``root``.
    problems: Sequence[Problem]  #: The problems, in the order of the rows.
    #: Position of each problem's record in the file of raw completions.
    spans: Sequence[LineSpan]
    sampling_id: str  #: Result of :func:`~fsdpo_data.core.sampling.sampling_id`.
    segmenter: str  #: Full name of the segmenter.
    grader: str  #: Full name of the grader, or :data:`NO_GRADER`.
    #: Whether a solution without text after its thinking may have its answer in the thinking.
    grade_thinking: bool = False
    #: Text around thinking that a server returned in a field of its own. None if it is unknown: the
    #: solutions then lack this thinking.
    thinking_format: ThinkingFormat | None = None

    def full_text(self, completion: Completion) -> str:
        """Return the text of a completion, with its thinking if the text around it is known."""
        has_steps = completion.step_chars is not None  # recorded steps, which are of the text alone
        if self.thinking_format is None or not completion.reasoning or has_steps:
            return completion.text
        return self.thinking_format.join(completion.reasoning, completion.text)


def write_solutions(
    tasks: Sequence[ShardTask], workers: int | None = None
) -> Iterator[tuple[FileEntry, Cost]]:
    """Write the shards in order; yield each file and the cost of its samples.

    Small jobs run in this process. ``workers`` is the number of processes; None means one per
    available core.

    Raises:
        StoreError: if the disk fails or a worker is killed, usually because memory ran out.
    """
    raw_bytes = sum(span.length for task in tasks for span in task.spans)
    workers = workers or len(os.sched_getaffinity(0))
    if workers == 1 or raw_bytes < MIN_BYTES_FOR_POOL:
        yield from map(write_shard, tasks)
    elif len(tasks) < workers and tasks[0].grader != NO_GRADER:
        # Grading is most of the work, so the cores share each shard.
        with GraderPool(partial(get_grader, tasks[0].grader), workers) as pool:
            yield from (write_shard(task, pool) for task in tasks)
    else:
        with worker_processes(workers) as processes:
            try:
                yield from processes.map(write_shard, tasks)
            except BrokenProcessPool as error:
                raise StoreError(
                    "A worker process died while it wrote the dataset, most likely because memory "
                    "ran out. Sealed files and samples are intact: run again with `resume=True` "
                    "and fewer `workers`."
                ) from error


def write_shard(task: ShardTask, grader: Grader | None = None) -> tuple[FileEntry, Cost]:
    """Split the completions of a shard into steps, grade them, and write them as one file."""
    records = list(read_records(task.root / COMPLETIONS_FILE, task.spans))
    requests = _grading_requests(task, records)
    solutions = _split_completions(task, records, requests)
    step_counts = [len(solution.completions) for solution in solutions]
    table = to_table("solutions", solutions)
    if task.grader != NO_GRADER:
        verdicts = (grader or get_grader(task.grader)).grade(requests)
        table = with_verdicts(table, verdicts, step_counts, task.grader)
    write_parquet(table, task.root / task.path)
    text_digest = hashlib.sha256()
    for request in requests:
        text_digest.update(digest_bytes(request.response))
    entry = FileEntry.from_file(task.root, task.path, len(solutions), text_digest.hexdigest())
    return entry, _sampling_cost(records)


def _sampling_cost(records: Sequence[CompletionRecord]) -> Cost:
    """Return the cost of the completions of some problems."""
    token_counts: list[int | None] = []
    prm_calls = 0
    for record in records:
        if search_cost := record.completions[0].search_cost:
            # The solutions of a search may share steps, so one of them and the rest count.
            token_counts += [record.completions[0].n_tokens, search_cost.discarded_tokens]
            prm_calls += search_cost.prm_calls
        else:
            token_counts += [completion.n_tokens for completion in record.completions]
    known_counts = [count for count in token_counts if count is not None]
    seconds = sum(completion.seconds for record in records for completion in record.completions)
    return Cost(
        tokens=sum(known_counts) if len(known_counts) == len(token_counts) else None,
        prm_calls=prm_calls,
        seconds=round(seconds, 3),
    )


def _grading_requests(task: ShardTask, records: Sequence[CompletionRecord]) -> list[GradingRequest]:
    """Return the request to grade each completion, problem by problem."""
    requests = [
        grading_request(
            problem,
            task.full_text(completion),
            prompt=record.prompt,
            finish_reason=completion.finish_reason,
            has_separate_reasoning=bool(completion.reasoning),
            is_unclosed=bool(completion.reasoning) and not completion.text.strip(),
            grade_thinking=task.grade_thinking,
        )
        for problem, record in zip(task.problems, records, strict=True)
        for completion in record.completions
    ]
    return mark_truncated_thinking(requests)


def _split_completions(
    task: ShardTask, records: Sequence[CompletionRecord], requests: Sequence[GradingRequest]
) -> list[Solution]:
    """Return the completions as solutions in steps, which are not graded yet.

    Args:
        task: The shard.
        records: The completions of each problem.
        requests: The request to grade each completion, which has its text and its thinking.
    """
    request_of_completion = iter(requests)
    solutions = []
    for record in records:
        for index, completion in enumerate(record.completions):
            request = next(request_of_completion)
            if completion.step_chars is not None:
                steps = split_at_lengths(request.response, completion.step_chars)
            else:
                steps = split_steps(request.response, request.thinking.end, task.segmenter)
            solution = Solution(
                solution_id=solution_id(record.problem_id, task.sampling_id, index),
                problem_id=record.problem_id,
                sample_index=index,
                prompt=record.prompt,
                completions=steps,
                finish_reason=completion.finish_reason,
                n_tokens=completion.n_tokens,
                answer=None,
                outcome=UNGRADED,
                verdict_by=NO_VERDICT,
                labels=None,
                step_rewards=completion.step_rewards,
                thinking_closed=None if task.grader == NO_GRADER else request.thinking.closed,
                imported_labels=completion.imported_labels,
                imported_ratings=completion.imported_ratings,
                search_cost=asdict(completion.search_cost) if completion.search_cost else None,
                imported_correct=completion.imported_correct,
            )
            solutions.append(solution)
    return solutions
