"""Build a dataset: sample solutions of problems, grade them and seal the result."""

import json
import logging
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fsdpo_data.core.completion_records import has_separate_thinking
from fsdpo_data.core.cost import NO_COST
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.failures import STOP_AT_FIRST, FailureLog, FailurePolicy
from fsdpo_data.core.files import store_errors, write_atomic
from fsdpo_data.core.identity import to_json_values
from fsdpo_data.core.job_shard import JobShard
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.sampling import Prompt
from fsdpo_data.dataset.card import dataset_card
from fsdpo_data.dataset.derive import run_stages, stage_options
from fsdpo_data.dataset.manifest import (
    SCORE_STAGE,
    AnyRecord,
    FileEntry,
    Manifest,
    StageCounts,
    read_manifest,
)
from fsdpo_data.dataset.run_directory import (
    MANIFEST_FILE,
    QUARANTINE_FILE,
    RunDir,
    lock_run_directory,
)
from fsdpo_data.dataset.schema import problems_table, write_parquet
from fsdpo_data.dataset.stage import Stage, discard_dataset, seal_dataset
from fsdpo_data.dataset.stage_records import (
    GRADE_STAGE,
    PROBLEMS_STAGE,
    SAMPLE_STAGE,
    GradeCounts,
    GradeRecord,
    GradeSettings,
    ProblemsRecord,
    SampleRecord,
    SampleSettings,
    ScoreCounts,
    ScoreRecord,
    make_manifest,
    problem_record,
    problem_settings,
)
from fsdpo_data.dataset.stage_registry import STAGES, StageEntry
from fsdpo_data.engines.load import ResolvedPolicy
from fsdpo_data.engines.samplers import (
    open_engine,
)
from fsdpo_data.engines.scorers.prm_formats import ScoreSettings
from fsdpo_data.models.resolve import find_chat_format
from fsdpo_data.models.thinking_format import ThinkingFormat, find_thinking_format
from fsdpo_data.problems.load import ProblemSet
from fsdpo_data.stages.import_labels import (
    IMPORT_STAGE,
    ImportCounts,
    ImportRecord,
    ImportSettings,
)
from fsdpo_data.stages.sample_prompts import ignore_new_records, sample_missing
from fsdpo_data.stages.write_solutions import SHARD_SOLUTIONS, ShardTask, write_solutions

log = logging.getLogger(__name__)

#: Folder of the sampled dataset inside the directory of a run with further stages.
BUILD_FOLDER = "build"
#: Name in the manifest in place of a segmenter, if the steps come from recorded responses.
RECORDED_STEPS = "recorded"


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """The options of the stages of a build, which decide its content."""

    sample: SampleSettings  #: Everything that determines the samples.
    grade: GradeSettings  #: Everything that determines the outcomes.
    score: ScoreSettings | None = None  #: The reward model of the step rewards; None without them.
    step_labels: ImportSettings | None = None  #: The imported step labels; None without them.

    def config(self, source: ProblemSet) -> dict[str, Any]:
        """Return the options by stage as plain JSON, which is the identity of the run."""
        options = {
            PROBLEMS_STAGE: problem_settings(source),
            SAMPLE_STAGE: self.sample,
            GRADE_STAGE: self.grade,
            SCORE_STAGE: self.score,
            IMPORT_STAGE: self.step_labels,
        }
        options = {name: value for name, value in options.items() if value is not None}
        return {"stages": to_json_values(options)}

    def open_run(
        self, path: Path, config: Mapping[str, Any], *, resume: bool
    ) -> AbstractContextManager[RunDir]:
        """Open the run of the samples in ``path``; see :meth:`RunDir.open`."""
        return RunDir.open(
            path,
            config,
            n_samples=self.sample.sampling.n,
            # A recording does not state its seed, and may have fewer samples for some problems.
            allows_fewer="seed" in self.sample.unknown_fields,
            resume=resume,
        )


@dataclass(frozen=True, slots=True)
class BuildJob:
    """A build that is ready to start."""

    spec: BuildSettings  #: The identity of the build.
    source: ProblemSet  #: The problems, and the rows that were quarantined while reading them.
    #: The model, which is loaded only if samples are missing, because that is slow.
    policy: ResolvedPolicy
    workers: int | None = None  #: Processes that grade; None for one per available core.
    #: When the build stops because of prompts that the engine refuses.
    failure_policy: FailurePolicy = STOP_AT_FIRST
    #: Whether an incomplete batch is sampled again as a whole, because a sample depends on its
    #: batch.
    keeps_batches: bool = False
    #: How the PRM format of a search was recognised; empty without a PRM format.
    format_evidence: str = ""

    @property
    def config(self) -> dict[str, Any]:
        """The identity of the run, as plain JSON.

        It has the recording of a replay. The options of the stages do not name the recording of a
        known model.
        """
        config = self.spec.config(self.source)
        recording = self.policy.recording
        return config if recording is None else {**config, "recording": recording}

    def config_with(self, stages: Sequence[Stage]) -> dict[str, Any]:
        """Return the identity of a run with further stages, as plain JSON."""
        config = self.config
        return {**config, "stages": config["stages"] | stage_options(stages)}

    @property
    def model_folder(self) -> str:
        """The name of the model, as a part of the default name of a folder."""
        return re.sub(r"[^\w.-]+", "-", self.spec.sample.model.name).strip("-.") or "model"


def build(
    job: BuildJob,
    out: Path,
    stages: Sequence[Stage] = (),
    *,
    resume: bool = False,
    progress: Progress,
) -> Manifest:
    """Sample, segment, grade and label solutions, run ``stages`` on them, and seal ``out``.

    The config of the directory covers the build and its stages. A run that was stopped in any stage
    can be resumed. A run with another config is refused before it samples.

    Raises:
        InputError: if there are no problems, or a stage cannot write anything.
        RunMismatchError: if ``out`` contains another run.
        StoreError: if the disk fails; the records on disk stay valid.
    """
    if not stages:
        return _build(job, out, resume=resume, progress=progress)
    with lock_run_directory(out, job.config_with(stages), resume=resume):
        # The lock has checked the config, so everything in the directory belongs to this run.
        _build(
            job,
            out / BUILD_FOLDER,
            resume=True,
            progress=progress,
            # Solutions of problems that failed before change the input of the stages.
            on_new_records=lambda: discard_dataset(out),
        )
        return run_stages(out / BUILD_FOLDER, out, stages=stages, progress=progress)


def build_shard(
    job: BuildJob,
    out: Path,
    stages: Sequence[Stage],
    shard: JobShard,
    *,
    resume: bool,
    is_part: bool = False,
    progress: Progress,
) -> None:
    """Sample the solutions of one shard of the problems, in the folders that :func:`build` uses.

    It locks ``out``, as :func:`build` does.

    Args:
        job: The complete build.
        out: The directory of the shard, or a folder in it.
        stages: The stages of the complete build.
        shard: The part of the problems.
        resume: Whether ``out`` may contain the shard.
        is_part: Whether ``out`` is a folder in the directory of the shard. The caller has locked
            that directory with a config that names the shard. A merge copies the config of ``out``,
            so it is that of the complete build.
        progress: Receives the progress.

    Raises:
        RunMismatchError: if ``out`` contains another run or another shard.
        StoreError: if the disk fails; the records on disk stay valid.
    """
    config = job.config_with(stages)
    if not is_part:
        config["shard"] = str(shard)
    if stages:
        with lock_run_directory(out, config, resume=resume):
            build_shard(
                job, out / BUILD_FOLDER, (), shard, resume=True, is_part=True, progress=progress
            )
        return
    with job.spec.open_run(out, config, resume=resume) as run:
        sample_problems(run, job, shard.select(job.source.problems), progress)


def _build(
    job: BuildJob,
    out: Path,
    *,
    resume: bool,
    progress: Progress,
    on_new_records: Callable[[], None] = ignore_new_records,
) -> Manifest:
    """Sample and seal a dataset without further stages.

    ``on_new_records`` is called before the first new samples are written.
    """
    if not job.source.problems:
        raise InputError(
            f"There are no problems to solve: none of {len(job.source.quarantined_rows)} rows can "
            "be used. Check the file, its split and its answers."
        )
    with job.spec.open_run(out, job.config, resume=resume) as run:

        def discard_seal() -> None:
            """Remove the results of an earlier session in which problems failed."""
            on_new_records()
            discard_dataset(out)

        is_sealed = (out / MANIFEST_FILE).exists()
        failed = read_manifest(out).failed if is_sealed else {}
        if not is_sealed or (SAMPLE_STAGE in failed and job.failure_policy.retries):
            sample_problems(run, job, job.source.problems, progress, on_new_records=discard_seal)
        if not (out / MANIFEST_FILE).exists():
            seal_samples(
                run,
                job.spec,
                job.source,
                model_name=job.policy.author_path,
                progress=progress,
                workers=job.workers,
                format_evidence=job.format_evidence,
            )
        return read_manifest(out)


def sample_problems(
    run: RunDir,
    job: BuildJob,
    problems: Sequence[Problem],
    progress: Progress,
    *,
    on_new_records: Callable[[], None] = ignore_new_records,
) -> None:
    """Sample the solutions of ``problems`` that the run does not have yet.

    A sampler that was loaded here is then closed, because the next model needs the memory.
    """
    render_prompt = job.policy.model.template.render
    prompts = (
        (problem.id, Prompt(render_prompt(problem.question), problem.question))
        for problem in problems
        if job.keeps_batches or problem.id not in run.line_spans
    )
    with open_engine(job.policy.make_sampler) as load_sampler:
        sample_missing(
            run,
            [problem.id for problem in problems],
            prompts,
            sampling=job.spec.sample.sampling,
            make_sampler=load_sampler,
            batch_size=job.policy.batch_size,
            phase="sample",
            progress=progress,
            failures=FailureLog(run.path, job.failure_policy, "problems", run.line_spans),
            on_new_records=on_new_records,
        )


def seal_samples(
    run: RunDir,
    spec: BuildSettings,
    source: ProblemSet,
    *,
    model_name: str,
    progress: Progress,
    workers: int | None = None,
    format_evidence: str = "",
    sample_counts: Mapping[str, int] | None = None,
    label_counts: ImportCounts | None = None,
) -> None:
    """Write the solutions of a run, check the files of the dataset, and write the manifest last.

    Args:
        run: The run, with the samples.
        spec: The identity of the dataset.
        source: The problems, and the quarantined rows.
        model_name: The model that wrote the samples. If it is a directory or ``org/name``, its
            chat template tells the tags of thinking that is in a field of its own.
        progress: Receives the progress.
        workers: Processes that grade; None for one per available core.
        format_evidence: How the PRM format of a search was recognised; empty without one.
        sample_counts: Number of samples by problem id; None if every problem has as many.
        label_counts: Counts of imported step labels; None without them.
    """
    files = [_write_problems(run, source)]
    cost = NO_COST
    thinking_format = _find_thinking_format(run, spec.sample, model_name)
    tasks = _shard_tasks(run, spec, source.problems, sample_counts or {}, thinking_format)
    progress.phase("write solutions", len(tasks))
    for file, file_cost in write_solutions(tasks, workers):
        files.append(file)
        cost += file_cost
        progress.advance(1)
    n_failed = sum(problem.id not in run.line_spans for problem in source.problems)
    records: list[AnyRecord] = [
        problem_record(source),
        SampleRecord(
            name=SAMPLE_STAGE,
            options=spec.sample,
            counts=StageCounts(failed=n_failed),
            cost=cost,
        ),
        GradeRecord(name=GRADE_STAGE, options=spec.grade, writes=["outcome"], counts=GradeCounts()),
    ]
    if spec.score is not None:
        score_counts = ScoreCounts(format_evidence=format_evidence)
        records.append(
            ScoreRecord(
                name=SCORE_STAGE, options=spec.score, writes=["step_rewards"], counts=score_counts
            )
        )
    if spec.step_labels is not None and label_counts is not None:
        records.append(_import_record(spec.step_labels, label_counts))
    manifest = make_manifest(records, files)
    progress.phase("validate", 1)
    seal_dataset(run.path, manifest, dataset_card, saved_problems=len(run.line_spans))
    progress.advance(1)


def _write_problems(run: RunDir, source: ProblemSet) -> FileEntry:
    """Write the problems and the quarantined rows, and remove the files of an earlier session."""
    root = run.path
    with store_errors(root, saved_problems=len(run.line_spans)):
        for name in ("problems", "solutions"):
            shutil.rmtree(root / name, ignore_errors=True)
            (root / name).mkdir()
        rows = "".join(json.dumps(asdict(row)) + "\n" for row in source.quarantined_rows)
        write_atomic(root / QUARANTINE_FILE, rows.encode())
    path = "problems/train-00000-of-00001.parquet"
    write_parquet(problems_table(source.problems), root / path)
    return FileEntry.from_file(root, path, len(source.problems))


def _import_record(settings: ImportSettings, counts: ImportCounts) -> ImportRecord:
    """Return the entry of imported step labels."""
    return ImportRecord(
        name=IMPORT_STAGE, options=settings, writes=["imported_labels"], counts=counts
    )


def _find_thinking_format(
    run: RunDir, sample: SampleSettings, model_name: str
) -> ThinkingFormat | None:
    """Return the text around thinking that is in a field of its own; None if it is unknown.

    The tokenizer of the model is loaded only if the samples have such thinking.
    """
    if not has_separate_thinking(run.completions_path):
        return None
    chat = find_chat_format(model_name)
    thinking_format = None
    if chat is not None:
        thinking_format = find_thinking_format(
            chat, sample.template.chat_arguments, sample.engine.first_messages
        )
    if thinking_format is None:
        log.warning(
            f"solutions lack their thinking, which is in a field of its own: {model_name} has no "
            "chat template here that shows its tags. `fsdpo-train dpo` and exports for policies "
            "refuse these solutions."
        )
    return thinking_format


def _shard_tasks(
    run: RunDir,
    spec: BuildSettings,
    problems: Sequence[Problem],
    sample_counts: Mapping[str, int],
    thinking_format: ThinkingFormat | None,
) -> list[ShardTask]:
    """Split the problems into parquet shards of at most ``SHARD_SOLUTIONS`` solutions.

    A shard has at least one problem. A problem without an entry in ``sample_counts`` has ``n``
    solutions.
    """
    shards: list[list[Problem]] = []
    n_solutions = 0  # in the last shard
    for problem in problems:
        count = sample_counts.get(problem.id, spec.sample.sampling.n)
        if not shards or n_solutions + count > SHARD_SOLUTIONS:
            shards.append([])
            n_solutions = 0
        shards[-1].append(problem)
        n_solutions += count
    return [
        ShardTask(
            root=run.path,
            path=f"solutions/train-{index:05d}-of-{len(shards):05d}.parquet",
            problems=[problem for problem in shard if problem.id in run.line_spans],
            spans=[run.line_spans[problem.id] for problem in shard if problem.id in run.line_spans],
            sampling_id=spec.sample.sampling_id,
            segmenter=spec.sample.segmenter,
            grader=spec.grade.grader,
            grade_thinking=spec.grade.grade_thinking,
            thinking_format=thinking_format,
        )
        for index, shard in enumerate(shards)
    ]


STAGES.register(StageEntry(name=PROBLEMS_STAGE, record=ProblemsRecord, card_row=""))
STAGES.register(
    StageEntry(
        name=SAMPLE_STAGE,
        record=SampleRecord,
        card_row="",
        failed_items="problems without samples",
    )
)
