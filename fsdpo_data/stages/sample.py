"""The main job: problems in, a sealed step-annotated dataset out."""

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import store_errors, write_atomic
from fsdpo_data.core.identity import ModelRef, SourceRef, digest, to_json_values
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.sampling import UNKNOWN, Completion, SamplingSpec, sampling_id
from fsdpo_data.dataset.manifest import Manifest, make_manifest, read_manifest
from fsdpo_data.dataset.manifest_sections import FileEntry
from fsdpo_data.dataset.run import MANIFEST_FILE, QUARANTINE_FILE, RunDir, lock_run_directory
from fsdpo_data.dataset.schema import problems_table, write_parquet
from fsdpo_data.dataset.stage import Stage, run_stages, seal_dataset, stage_specs
from fsdpo_data.dataset.tally import Tally
from fsdpo_data.engines.samplers import Sampler, close_engine, stream
from fsdpo_data.models.prompts import Template
from fsdpo_data.problems.load import ProblemSet
from fsdpo_data.stages.annotate import SHARD_SOLUTIONS, ShardTask, annotate
from fsdpo_data.stages.grade import UNFINISHED_THINKING_GRADED
from fsdpo_data.steps.rewards import OUTCOME_LABELS

BUILD_FOLDER = (
    "build"  #: Folder of the sampled dataset inside the directory of a run with further stages.
)
#: Seconds after which finished prompts are written, if their batch is not finished before.
SAVE_INTERVAL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """Everything that decides what a build contains; its digest is the run's identity.

    Of a replay, ``unknown`` are the fields of ``sampling`` that nobody has stated.
    """

    model: ModelRef
    sources: tuple[SourceRef, ...]
    template: Template
    sampling: SamplingSpec
    engine: Mapping[str, str]
    segmenter: str
    grader: str
    labels: str = OUTCOME_LABELS
    unknown: tuple[str, ...] = ()
    grade_thinking: bool = False  #: Whether thinking that never ends may hold the answer.

    def config(self, problems: Sequence[Problem]) -> dict[str, Any]:
        """Return the spec as plain JSON, with the digest of the problems it is run on."""
        config = {
            "model": self.model,
            "sources": list(self.sources),
            "problems": {"count": len(problems), "digest": digest([each.id for each in problems])},
            "template": {"name": self.template.name, "digest": self.template.digest},
            "sampling": self.sampling.to_json_values() | dict.fromkeys(self.unknown, UNKNOWN),
            "engine": dict(self.engine),
            "segmenter": self.segmenter,
            "grader": self.grader,
            "labels": self.labels,
            **({"thinking": UNFINISHED_THINKING_GRADED} if self.grade_thinking else {}),
        }
        return to_json_values(config)


@dataclass(frozen=True, slots=True)
class BuildJob:
    """A build that is ready to start."""

    spec: BuildSpec
    source: ProblemSet  #: The problems, with what was quarantined on the way.
    make_sampler: Callable[[], Sampler]  #: Called only if some are owed: loading a model is slow.
    batch: int = 64
    workers: int | None = None
    #: What a problem was asked as; what the template makes of it if None.
    prompt_of: Callable[[Problem], str] | None = None

    @property
    def config(self) -> dict[str, Any]:
        """The identity of the run, as plain JSON."""
        return self.spec.config(self.source.problems)


def build(
    job: BuildJob,
    out: Path,
    stages: Sequence[Stage] = (),
    *,
    resume: bool = False,
    progress: Progress,
) -> Manifest:
    """Sample, segment, grade, label and seal in ``out``; with ``stages``, seal what they make.

    The directory belongs to the whole way from the first sample on: a run that is stopped at any
    stage goes on there, and one that asks for something else is refused before it samples.

    Raises:
        InputError: if there is no problem to solve, or nothing to make of the solutions.
        RunMismatchError: if ``out`` holds another run.
        StoreError: if the disk fails; what was written stays valid.
    """
    if not stages:
        return _build(job, out, resume=resume, progress=progress)
    loaded: list[Sampler] = []

    def make_sampler() -> Sampler:
        loaded.append(job.make_sampler())
        return loaded[-1]

    with lock_run_directory(
        out, {"build": job.config, "stages": stage_specs(stages)}, resume=resume
    ):
        # The directory is claimed: whatever is in it is of this run.
        remembered = replace(job, make_sampler=make_sampler)
        _build(remembered, out / BUILD_FOLDER, resume=True, progress=progress)
        for sampler in loaded:
            close_engine(sampler)  # the next model may need the memory
        return run_stages(out / BUILD_FOLDER, out, stages, progress)


def _build(job: BuildJob, out: Path, *, resume: bool, progress: Progress) -> Manifest:
    if not job.source.problems:
        raise InputError(
            f"There is no problem to solve: {len(job.source.quarantined)} rows were read and none "
            "can be used. Check the file, its split and its answers."
        )
    with RunDir.open(out, job.config, resume=resume) as run:
        if not (out / MANIFEST_FILE).exists():
            sample_problems(run, job, job.source.problems, progress)
            _seal(run, job, progress)
        return read_manifest(out)


def sample_problems(
    run: RunDir, job: BuildJob, problems: Sequence[Problem], progress: Progress
) -> None:
    """Sample whatever the run still owes of some problems."""
    prompt_of = job.prompt_of or (lambda problem: job.spec.template.render(problem.question))
    owed = (
        (problem.id, prompt_of(problem)) for problem in problems if problem.id not in run.line_spans
    )
    how = (job.spec.sampling, job.make_sampler, job.batch)
    sample_missing(
        run, [each.id for each in problems], owed, *how, phase="sample", progress=progress
    )


def sample_missing(
    run: RunDir,
    keys: Collection[str],
    owed: Iterator[tuple[str, str]],
    sampling: SamplingSpec,
    make_sampler: Callable[[], Sampler],
    batch: int,
    *,
    phase: str,
    progress: Progress,
) -> None:
    """Sample what a run still owes, a batch at a time; what is finished is soon on disk.

    Of all ``keys`` that it is to hold in the end, ``owed`` yields those that it does not hold yet,
    with their prompts. The sampler is only made if there are any.
    """
    there = sum(key in run.line_spans for key in keys)
    if there == len(keys):
        return
    progress.phase("load", 1)
    sampler = make_sampler()
    progress.phase(phase, len(keys), done=there)
    finished: list[tuple[str, str, Sequence[Completion]]] = []
    while chunk := list(islice(owed, batch)):
        saved = time.monotonic()
        try:
            for place, completions in stream(sampler, [prompt for _, prompt in chunk], sampling):
                finished.append((*chunk[place], completions))
                progress.advance(1, sum(each.n_tokens or 0 for each in completions))
                if time.monotonic() - saved > SAVE_INTERVAL_SECONDS:
                    _save(run, finished)
                    saved = time.monotonic()
        finally:  # what came before a Ctrl-C or a dead server, too
            _save(run, finished)


def _save(run: RunDir, finished: list[tuple[str, str, Sequence[Completion]]]) -> None:
    records = finished.copy()
    finished.clear()  # first: what a Ctrl-C tears is owed again, and not written twice
    if records:
        run.append(records)


def _seal(run: RunDir, job: BuildJob, progress: Progress) -> None:
    """Write the dataset's files, check them, and write the manifest last of all."""
    root, source = run.path, job.source
    with store_errors(root, saved_problems=len(run.line_spans)):
        for name in ("problems", "solutions"):
            shutil.rmtree(root / name, ignore_errors=True)
            (root / name).mkdir()
        rows = "".join(json.dumps(asdict(row)) + "\n" for row in source.quarantined)
        write_atomic(root / QUARANTINE_FILE, rows.encode())
    path = "problems/train-00000-of-00001.parquet"
    write_parquet(problems_table(source.problems), root / path)
    files, tally = [FileEntry.from_file(root, path, len(source.problems))], Tally()
    tasks = _shard_tasks(run, job)
    progress.phase("annotate", len(tasks))
    for file, counts in annotate(tasks, job.workers):
        files.append(file)
        tally.add(counts)
        progress.advance(1)
    reasons = Counter(row.reason.partition(":")[0] for row in source.quarantined)
    manifest = make_manifest(job.config, files, tally, reasons)
    progress.phase("validate", 1)
    seal_dataset(root, manifest, saved=len(run.line_spans))
    progress.advance(1)


def _shard_tasks(run: RunDir, job: BuildJob) -> list[ShardTask]:
    spec, problems = job.spec, job.source.problems
    size = max(1, SHARD_SOLUTIONS // spec.sampling.n)
    count = -(-len(problems) // size)
    return [
        ShardTask(
            root=run.path,
            path=f"solutions/train-{index:05d}-of-{count:05d}.parquet",
            problems=[
                (problem.id, problem.answer, run.line_spans[problem.id])
                for problem in problems[index * size : (index + 1) * size]
            ],
            sampling=sampling_id(spec.model, spec.template.digest, spec.sampling),
            segmenter=spec.segmenter,
            grader=spec.grader,
            grade_thinking=spec.grade_thinking,
        )
        for index in range(count)
    ]
