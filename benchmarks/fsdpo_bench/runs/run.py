"""Decode all problems of the benchmarks of a run, and store one record per problem.

A problem is complete when its record is written. Problems are decoded in batches with fixed
boundaries. After an interruption, an incomplete batch is decoded again as a whole, because the
composition of a batch affects the last bits of the numbers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fsdpo_bench.decode.decoder import DecoderSetup, DecodingRequest
from fsdpo_bench.decode.plan import DecodingPlan
from fsdpo_bench.decode.records import DecodedProblem, ProblemRecord
from fsdpo_bench.decode.solution import (
    DecodedSolution,
    OnFinished,
    add_rewards,
    sample_solutions,
)
from fsdpo_bench.runs.answer_judge import judge_run
from fsdpo_bench.runs.failures import BatchFailures, TolerantSampler, TolerantScorer
from fsdpo_bench.runs.grade import grade_problems
from fsdpo_bench.runs.records import append_records, open_records, record_key, replace_records
from fsdpo_bench.tasks.load import LoadedTask
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.core.failures import STOP_AT_FIRST, FailureLog, FailurePolicy
from fsdpo_data.core.identity import ModelRef, to_json_values
from fsdpo_data.core.jsonl_log import JsonlLog
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.sampling import UNKNOWN, SamplingSpec
from fsdpo_data.dataset.run import lock_run_directory
from fsdpo_data.engines.answer_judge import AnswerJudge
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.engines.samplers import Sampler, close_loaded_engine
from fsdpo_data.engines.scorers import Scorer
from fsdpo_data.models.prompts import Template
from fsdpo_data.problems.load import draw_positions, problems_digest

#: Version of the config and the records; raised when their meaning changes.
RUN_VERSION = 1


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything except the benchmarks that decides the content of a run.

    :meth:`config` adds the benchmarks; its digest identifies the run.
    """

    model: ModelRef  #: The model that writes the solutions.
    template: Template  #: The prompt template.
    sampling: SamplingSpec  #: Sampling settings; ``n`` is ``max(1, plan.n_samples)``.
    engine: Mapping[str, str]  #: Name and settings of the engine.
    segmenter: str  #: Full name of the segmenter.
    plan: DecodingPlan  #: The decoders.
    #: The reward model with its engine; None without a reward model.
    prm: Mapping[str, Any] | None = None
    #: For recorded responses of another program: the names of unknown sampling settings.
    unknown_fields: tuple[str, ...] = ()
    answer_judge: AnswerJudge | None = None  #: Decides undecided answers; None without a judge.

    def config(self, tasks: Sequence[LoadedTask]) -> dict[str, Any]:
        """Return the spec and the benchmarks of the run as plain JSON."""
        config = {
            "kind": "bench",
            "version": RUN_VERSION,
            "model": self.model,
            "template": self.template.ref,
            "sampling": self.sampling.to_json_values()
            | dict.fromkeys(self.unknown_fields, UNKNOWN),
            "engine": dict(self.engine),
            "segmenter": self.segmenter,
            "grader": MathGrader().version,
            "prm": None if self.prm is None else dict(self.prm),
            "decoders": self.plan.result_names,
            "beam": self.plan.beam_config(),
            "tasks": {loaded.task.name: _task_config(loaded) for loaded in tasks},
        }
        if self.answer_judge is not None:
            config["answer_judge"] = self.answer_judge.settings
        return to_json_values(config)


def _task_config(loaded: LoadedTask) -> dict[str, Any]:
    """Return the entry of a benchmark in the config of a run."""
    task = loaded.task
    config: dict[str, Any] = {
        "title": task.title,
        "version": task.version,
        "rows": task.count,
        "digest": loaded.digest,
        "problems": len(loaded.problems),
        "decoded": problems_digest(loaded.ids),
        "tolerance": task.tolerance,
    }
    if task.base_task:
        config["base_task"] = task.base_task
    if task.spread_group:
        config["spread_group"] = task.spread_group
    config["source"] = loaded.ref
    return config


def limit_problems(loaded: LoadedTask, limit: int | None, seed: int = 0) -> LoadedTask:
    """Return ``limit`` random problems of a benchmark; all problems for None."""
    if limit is None:
        return loaded
    return loaded.subset(draw_positions(loaded.ids, limit, seed))


@dataclass(frozen=True, slots=True)
class BenchJob:
    """A run that is ready to start. Models are loaded only if a record is missing."""

    spec: RunSpec  #: Everything that decides the content of the run.
    tasks: Sequence[LoadedTask]  #: The benchmarks with the problems to decode.
    make_sampler: Callable[[], Sampler]  #: Loads the policy.
    make_scorer: Callable[[], Scorer]  #: Loads the reward model.
    batch_size: int = 32  #: Number of problems per batch.
    workers: int | None = None  #: Number of grading processes; None for all CPU cores.
    format_evidence: str = ""  #: How the PRM format was recognised; empty without a PRM format.
    #: When the run stops because of prompts and solutions that an engine refuses.
    failure_policy: FailurePolicy = STOP_AT_FIRST

    @property
    def config(self) -> dict[str, Any]:
        """The config of the run as plain JSON."""
        return self.spec.config(self.tasks)


def decode_tasks(job: BenchJob, out: Path, *, resume: bool = False, progress: Progress) -> None:
    """Decode all problems without a record, and append their records; then ask the judge.

    Args:
        job: The run.
        out: Run directory.
        resume: Whether to continue an interrupted run in ``out``.
        progress: Progress bar.

    Raises:
        RunMismatchError: if ``out`` contains another run.
        StoreError: if the disk fails; records that were written stay valid.
        FailedItemsError: if more problems fail than the policy of the job allows.
    """
    make_sampler = cache(job.make_sampler)
    make_scorer = cache(job.make_scorer)
    job = replace(job, make_sampler=make_sampler, make_scorer=make_scorer)
    run_values = {"prm_format_evidence": job.format_evidence}
    with lock_run_directory(out, job.config, resume=resume, run_values=run_values):
        failures = FailureLog(out, job.failure_policy, "problems")
        failures.expect(sum(len(loaded.problems) for loaded in job.tasks))
        for loaded in job.tasks:
            with open_records(out, loaded.task.name) as log:
                finished_keys = log.line_spans.keys()
                progress.phase(loaded.task.name, len(loaded.problems), done=len(finished_keys))
                for batch in _missing_batches(loaded, finished_keys, job.batch_size):
                    n_requests = len(batch.rows) * job.spec.plan.requests_per_problem
                    with _batch_progress(progress, len(batch.missing_keys), n_requests) as report:
                        batch_failures = BatchFailures(_render_prompts(job, loaded, batch.rows))
                        decoder = _BatchDecoder(job, report, batch_failures)
                        records = decoder.decode(loaded, batch.rows)
                        _write_batch(log, loaded, batch, records, failures)
                    _record_failures(failures, loaded, batch, batch_failures)
                    failures.check_engine(has_finished_items=bool(log.line_spans))
        if job.spec.answer_judge is not None:
            for make_engine in (make_sampler, make_scorer):
                close_loaded_engine(make_engine)  # the judge may need the memory
            names = [loaded.task.name for loaded in job.tasks]
            judge_run(job.spec.answer_judge, out, names, progress)


def _write_batch(
    log: JsonlLog,
    loaded: LoadedTask,
    batch: "_Batch",
    records: Sequence[ProblemRecord],
    failures: FailureLog,
) -> None:
    """Write the records of a batch.

    If some of its problems failed in an earlier session, the other records come from a batch with
    other problems. All of these records are replaced.
    """
    if any(_failure_id(loaded, key) in failures for key in batch.missing_keys):
        replace_records(log, records)
        return
    missing_records = (
        record
        for record in records
        if record_key(record.problem_id, record.row) in batch.missing_keys
    )
    append_records(log, missing_records)


def _record_failures(
    failures: FailureLog, loaded: LoadedTask, batch: "_Batch", batch_failures: BatchFailures
) -> None:
    """Record the failed problems of a batch, and remove the failures of the others.

    Raises:
        ItemError: if the first failed problem stops the run.
        FailedItemsError: if more problems have failed than the policy allows.
    """
    for index, row in enumerate(batch.rows):
        key = record_key(loaded.ids[row], row)
        error = batch_failures.errors.get(index)
        if error is None:
            failures.resolve(_failure_id(loaded, key))
        elif key in batch.missing_keys:
            failures.add(_failure_id(loaded, key), error, task=loaded.task.name)
    failures.save()


def _failure_id(loaded: LoadedTask, key: str) -> str:
    """Return the id of a failed problem."""
    return f"{loaded.task.name}/{key}"


@contextmanager
def _batch_progress(progress: Progress, n_problems: int, n_requests: int) -> Iterator[OnFinished]:
    """Advance a progress bar by ``n_problems`` while decoders finish ``n_requests`` prompts.

    An interrupted batch is decoded again, so an exception takes its progress back.
    """
    finished_requests = 0
    reported_problems = 0

    def report_finished(prompts: int, tokens: int) -> None:
        """Count finished prompts, and report newly finished problems."""
        nonlocal finished_requests, reported_problems
        finished_requests += prompts
        finished_problems = n_problems * finished_requests // n_requests
        progress.advance(finished_problems - reported_problems, tokens)
        reported_problems = finished_problems

    try:
        yield report_finished
    except BaseException:
        progress.discard(reported_problems)
        raise


def _render_prompts(job: BenchJob, loaded: LoadedTask, rows: range) -> list[str]:
    """Return the prompts of the problems in some rows of a benchmark."""
    return [job.spec.template.render(loaded.problems[row].question) for row in rows]


class _Batch(NamedTuple):
    """A batch of problems with at least one missing record."""

    rows: range  #: All rows of the batch.
    missing_keys: Set[str]  #: Keys of the missing records.


def _missing_batches(
    loaded: LoadedTask, finished_keys: Set[str], batch_size: int
) -> Iterator[_Batch]:
    """Yield the batches of a benchmark with missing records."""
    for start in range(0, len(loaded.ids), batch_size):
        rows = range(start, min(start + batch_size, len(loaded.ids)))
        missing_keys = {record_key(loaded.ids[row], row) for row in rows} - finished_keys
        if missing_keys:
            yield _Batch(rows, missing_keys)


@dataclass(frozen=True, slots=True)
class _BatchDecoder:
    """Applies the decoders of a plan to batches of problems."""

    job: BenchJob  #: The run.
    on_finished: OnFinished  #: Called when prompts finish.
    failures: BatchFailures  #: Receives the failed problems of the batch.

    def decode(self, loaded: LoadedTask, rows: range) -> list[ProblemRecord]:
        """Decode and grade the problems in some rows of a benchmark, and return their records.

        Failed problems have no record.
        """
        plan = self.job.spec.plan
        problems = [
            problem
            for index, problem in enumerate(self._decode_problems(loaded, rows))
            if index not in self.failures.errors
        ]
        return grade_problems(
            problems,
            setups=plan.setups,
            result_names=plan.result_names,
            workers=self.job.workers,
        )

    def _decode_problems(self, loaded: LoadedTask, rows: range) -> list[DecodedProblem]:
        """Return the problems in some rows of a benchmark with their solutions."""
        spec = self.job.spec
        problems = [loaded.problems[row] for row in rows]
        questions = [problem.question for problem in problems]
        prompts = self.failures.prompts
        samples = self._draw_samples(prompts, questions)
        own_solutions = {
            setup.name: setup.decoder.decode(self._request(setup, prompts, questions))
            for setup in spec.plan.setups
            if setup.decoder.decode is not None
        }
        return [
            DecodedProblem(
                task=loaded.task.name,
                row=row,
                problem_id=loaded.ids[row],
                problem=replace(problem, metadata=loaded.task.record_metadata(problem.metadata)),
                prompt=prompts[index],
                samples=samples[index],
                own_solutions={name: own_solutions[name][index] for name in own_solutions},
            )
            for index, (row, problem) in enumerate(zip(rows, problems, strict=True))
        ]

    def _request(
        self, setup: DecoderSetup, prompts: Sequence[str], questions: Sequence[str]
    ) -> DecodingRequest:
        """Return the input of a decoder that generates solutions of its own."""
        spec = self.job.spec
        return DecodingRequest(
            setup=setup,
            prompts=prompts,
            questions=questions,
            sampler=self._make_sampler(),
            load_scorer=None if spec.prm is None else self._make_scorer,
            sampling=spec.sampling,
            segmenter=spec.segmenter,
            beam=spec.plan.beams[0] if spec.plan.beams else BeamSpec(),
            on_finished=self.on_finished,
        )

    def _draw_samples(
        self, prompts: Sequence[str], questions: Sequence[str]
    ) -> list[list[DecodedSolution]]:
        """Draw the samples that several decoders share, with rewards if a decoder needs them."""
        spec = self.job.spec
        if not spec.plan.n_samples:
            return [[] for _ in prompts]
        samples = sample_solutions(
            prompts,
            sampler=self._make_sampler(),
            sampling=spec.sampling,
            segmenter=spec.segmenter,
            on_finished=self.on_finished,
        )
        if not spec.plan.needs_sample_rewards:
            return samples
        return add_rewards(prompts, samples, self._make_scorer(), questions)

    def _make_sampler(self) -> Sampler:
        """Return the model, which goes on after refused prompts if the run allows failures."""
        sampler = self.job.make_sampler()
        if self.job.failure_policy.stops_at_first:
            return sampler
        return TolerantSampler(sampler, self.failures)

    def _make_scorer(self) -> Scorer:
        """Return the reward model, which goes on after refused solutions like the model."""
        scorer = self.job.make_scorer()
        if self.job.failure_policy.stops_at_first:
            return scorer
        return TolerantScorer(scorer, self.failures)
