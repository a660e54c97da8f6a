"""The main job: problems in, a sealed step-annotated dataset out."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import explained, write_atomic
from fsdpo_data.core.identity import ModelRef, SourceRef, canonical_json, digest
from fsdpo_data.core.job_shard import JobShard
from fsdpo_data.core.nouns import Problem
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.sampling import SamplingSpec, sampling_id
from fsdpo_data.dataset.manifest import Manifest, make_manifest, read_manifest
from fsdpo_data.dataset.parquet import write_parquet
from fsdpo_data.dataset.parts import FileEntry
from fsdpo_data.dataset.run import QUARANTINE, RunDir
from fsdpo_data.dataset.schema import to_table
from fsdpo_data.dataset.seal import seal
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.models.prompts import Template
from fsdpo_data.problems.load import ProblemSet
from fsdpo_data.stages.annotate import SHARD_SOLUTIONS, ShardTask, annotate
from fsdpo_data.steps.labels import OUTCOME_LABELS


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """Everything that decides what a build contains; its digest is the run's identity."""

    model: ModelRef
    sources: tuple[SourceRef, ...]
    template: Template
    sampling: SamplingSpec
    engine: str
    dtype: str
    segmenter: str
    grader: str
    labels: str = OUTCOME_LABELS

    def config(self, problems: Sequence[Problem]) -> dict[str, Any]:
        """Return the spec as plain JSON, with the digest of the problems it is run on."""
        config = {
            "model": self.model,
            "sources": list(self.sources),
            "problems": {
                "count": len(problems),
                "digest": digest([problem.id for problem in problems]),
            },
            "template": {"name": self.template.name, "digest": self.template.digest},
            "sampling": self.sampling,
            "engine": {"name": self.engine, "dtype": self.dtype},
            "segmenter": self.segmenter,
            "grader": self.grader,
            "labels": self.labels,
        }
        plain: dict[str, Any] = json.loads(canonical_json(config))
        return plain


def build(
    spec: BuildSpec,
    source: ProblemSet,
    make_sampler: Callable[[], Sampler],
    out: Path,
    *,
    resume: bool = False,
    batch: int = 64,
    workers: int | None = None,
    progress: Progress,
) -> Manifest:
    """Sample, segment, grade, label and seal.

    Args:
        spec: What to do.
        source: The problems, with what was quarantined on the way.
        make_sampler: Called only if samples are owed: loading a model is slow.
        out: Run directory.
        resume: Whether to go on with a run that is there.
        batch: Problems per durable batch.
        workers: Processes for grading; the cores at hand if None.
        progress: Told of every batch.

    Returns:
        The manifest of the sealed dataset.

    Raises:
        InputError: if there is no problem to solve.
        RunMismatch: if ``out`` holds another run.
        StoreError: if the disk fails; what was written stays valid.
    """
    if not source.problems:
        raise InputError(
            f"There is no problem to solve: {len(source.quarantined)} rows were read and none can "
            "be used. Check the file, its split and its answers."
        )
    config = spec.config(source.problems)
    with RunDir.open(out, config, resume=resume) as run:
        if not run.sealed:
            sample_owed(run, spec, source.problems, make_sampler, batch, progress)
            _seal(run, spec, source, config, workers, progress)
        return read_manifest(run.path)


def sample_shard(
    spec: BuildSpec,
    source: ProblemSet,
    make_sampler: Callable[[], Sampler],
    out: Path,
    shard: JobShard,
    *,
    resume: bool = False,
    batch: int = 64,
    progress: Progress,
) -> None:
    """Do one job's part of :func:`build`: the samples of some problems; nothing is sealed.

    Raises:
        RunMismatch: if ``out`` holds another run or another shard.
        StoreError: if the disk fails; what was written stays valid.
    """
    config = {**spec.config(source.problems), "shard": str(shard)}
    with RunDir.open(out, config, resume=resume) as run:
        sample_owed(run, spec, shard.of(source.problems), make_sampler, batch, progress)


def sample_owed(
    run: RunDir,
    spec: BuildSpec,
    problems: Sequence[Problem],
    make_sampler: Callable[[], Sampler],
    batch: int,
    progress: Progress,
) -> int:
    """Sample whatever the run still owes, a durable batch at a time; return the tokens sampled."""
    owed = [problem for problem in problems if problem.id not in run.spans]
    if not owed:
        return 0
    progress.phase("load", 1)
    sampler = make_sampler()
    progress.phase("sample", len(problems), done=len(problems) - len(owed))
    sampled = 0
    for start in range(0, len(owed), batch):
        chunk = owed[start : start + batch]
        prompts = [spec.template.render(problem.question) for problem in chunk]
        results = sampler.sample(prompts, spec.sampling)
        run.append(
            [
                (problem.id, prompt, completions)
                for problem, prompt, completions in zip(chunk, prompts, results, strict=True)
            ]
        )
        tokens = sum(each.n_tokens for completions in results for each in completions)
        progress.advance(len(chunk), tokens)
        sampled += tokens
    return sampled


def _seal(
    run: RunDir,
    spec: BuildSpec,
    source: ProblemSet,
    config: Mapping[str, Any],
    workers: int | None,
    progress: Progress,
) -> None:
    """Write the dataset's files, check them, and write the manifest last of all."""
    with explained(run.path, saved=len(run.spans)):
        for name in ("problems", "solutions"):
            shutil.rmtree(run.path / name, ignore_errors=True)
            (run.path / name).mkdir()
    problems_file = "problems/train-00000-of-00001.parquet"
    write_parquet(to_table("problems", source.problems), run.path / problems_file)
    problems = FileEntry.describe(run.path, problems_file, len(source.problems))
    tasks = _shard_tasks(run, spec, source.problems)
    progress.phase("annotate", len(tasks))
    shards = []
    for shard in annotate(tasks, workers):
        shards.append(shard)
        progress.advance(1)
    reasons = Counter(row.reason.partition(":")[0] for row in source.quarantined)
    manifest = make_manifest(run.path, config, problems, shards, reasons)
    progress.phase("validate", 1)
    with explained(run.path, saved=len(run.spans)):
        rows = [json.dumps(row, ensure_ascii=True) for row in _quarantine_rows(source)]
        write_atomic(run.path / QUARANTINE, "".join(row + "\n" for row in rows).encode())
    seal(run.path, manifest, saved=len(run.spans))
    progress.advance(1)


def _shard_tasks(run: RunDir, spec: BuildSpec, problems: Sequence[Problem]) -> list[ShardTask]:
    size = max(1, SHARD_SOLUTIONS // spec.sampling.n)
    count = -(-len(problems) // size)
    sampling = sampling_id(spec.model, spec.template.digest, spec.sampling)
    return [
        ShardTask(
            completions=run.completions,
            problems=[
                (problem.id, problem.answer, run.spans[problem.id])
                for problem in problems[index * size : (index + 1) * size]
            ],
            target=run.path / "solutions" / f"train-{index:05d}-of-{count:05d}.parquet",
            sampling=sampling,
            segmenter=spec.segmenter,
            grader=spec.grader,
        )
        for index in range(count)
    ]


def _quarantine_rows(source: ProblemSet) -> list[dict[str, Any]]:
    return [
        {"source": row.source, "row": row.row, "reason": row.reason, "raw": row.raw}
        for row in source.quarantined
    ]
