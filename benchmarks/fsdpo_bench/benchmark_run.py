"""Runs: sealed datasets with the solutions of benchmark problems, by the stages of ``fsdpo_data``.

A run has one dataset of samples that decoders share, and one dataset for each decoder with
solutions of its own. All of them share the loaded models. ``run.json``, which is written last,
lists them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from fsdpo_bench.decoders.decoders import DECODERS, DecoderSetup
from fsdpo_bench.run_folder import BenchmarkEntry, RunRecord, write_run_record
from fsdpo_bench.run_options import RunOptions, names_with_rewards
from fsdpo_bench.tasks.load import LoadedTask, load_task
from fsdpo_bench.tasks.problems import benchmark_problems, limit_problems
from fsdpo_bench.tasks.table import select_tasks
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.failures import FAILURES_FILE
from fsdpo_data.core.identity import digest, to_json_values
from fsdpo_data.core.progress import Progress, progress
from fsdpo_data.dataset.derive import run_stages
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.run_directory import MANIFEST_FILE, lock_run_directory
from fsdpo_data.dataset.stage import Stage, discard_dataset
from fsdpo_data.dataset.stage_records import SAMPLE_STAGE
from fsdpo_data.engines.load import (
    ResolvedPolicy,
    ResolvedRewardModel,
    resolve_policy,
    resolve_reward_model,
)
from fsdpo_data.engines.registry import scorer_engine_for
from fsdpo_data.engines.samplers import EngineLoader, Sampler
from fsdpo_data.engines.samplers.replay import count_completions
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm, model_aggregate
from fsdpo_data.models.checkpoints import load_config
from fsdpo_data.models.prompts import load_tokenizer
from fsdpo_data.models.resolve import SERVED_REVISION, ResolvedWeights
from fsdpo_data.problems.load import ProblemSet, problems_digest
from fsdpo_data.stages.grade import GradeStage
from fsdpo_data.stages.judge_answers import AnswerJudge, resolve_answer_judge
from fsdpo_data.stages.pipeline import SolutionSearch, make_build_job
from fsdpo_data.stages.sample import BUILD_FOLDER, BuildJob, build
from fsdpo_data.stages.score import ScoreStage, check_server_prompts, warn_about_template
from fsdpo_data.steps.segment import segmenter_name

Warn = Callable[[str], None]  #: Receives remarks for readers of the results.


def _ignore_warning(message: str) -> None:
    """Drop a warning."""


class RunPart(NamedTuple):
    """A dataset of a run."""

    job: BuildJob  #: The build of the solutions.
    stages: Sequence[Stage] = ()  #: The stages after the build, such as the one of step rewards.


@dataclass(frozen=True, slots=True)
class BenchmarkRun:
    """A run that is ready to start. Models are loaded if solutions or rewards are missing."""

    record: RunRecord  #: The content of ``run.json``.
    parts: Mapping[str, RunPart]  #: The datasets by name.
    close_engines: Callable[[], None]  #: Frees the models of the parts.
    answer_judge: AnswerJudge | None = None  #: Decides undecided answers; None without a judge.
    warnings: Sequence[str] = ()  #: Remarks for readers of the results.

    @property
    def config(self) -> dict[str, Any]:
        """Everything that decides the content of the run, as plain JSON."""
        parts = {name: part.job.config_with(part.stages) for name, part in self.parts.items()}
        config: dict[str, Any] = {**self.record.model_dump(mode="json"), "parts": parts}
        if self.answer_judge is not None:
            config["answer_judge"] = self.answer_judge.settings
        return to_json_values(config)

    def build_folder(self, out: Path) -> Path:
        """Return the folder of the parts before a judge decides; ``out`` without a judge."""
        return out if self.answer_judge is None else out / BUILD_FOLDER

    @property
    def default_out(self) -> Path:
        """``runs/bench-MODEL-DIGEST``."""
        first_part = next(iter(self.parts.values()))
        return Path("runs") / f"bench-{first_part.job.model_folder}-{digest(self.config)[:8]}"


def run_benchmarks(
    options: RunOptions,
    warn: Warn = _ignore_warning,
    *,
    location: str | Path | None = None,
    is_merge: bool = False,
) -> Path:
    """Solve benchmarks, and return the folder of the run.

    Args:
        options: The options. ``out`` is a local directory
            (:func:`~fsdpo_data.dataset.remote.local_paths`).
        warn: Called with each warning.
        location: The output that the user named, which may be a URL; None for the folder.
        is_merge: Whether the folder has the solutions of merged shards.

    Raises:
        InputError: if an option cannot be used.
        UnavailableError: if a library, a GPU, a model or the Hub is not available.
    """
    run = prepare_run(options)
    for warning in run.warnings:
        warn(warning)
    out = Path(options.out or run.default_out)
    with progress() as progress_bar:
        execute_run(run, out, resume=options.resume, progress=progress_bar)
    for warning in describe_failures(
        out, run.record.parts, location=location or out, is_merge=is_merge
    ):
        warn(warning)
    return out


def prepare_run(options: RunOptions) -> BenchmarkRun:
    """Resolve the models and load the problems; the weights are loaded when they are needed.

    Raises:
        InputError: if an option cannot be used.
        UnavailableError: if a library, a model or the Hub is not available.
    """
    tasks = options.rows.apply(select_tasks(options.suite, options.task))
    if options.model is None and not options.is_replay:
        raise InputError(
            "missing: give a short name, org/name on the Hub, or a directory.", field="model"
        )
    if options.data is not None and all(task.has_own_problems for task in tasks):
        raise options.field_error(
            "data",
            "a file as `task` contains its problems, and generated problems need no file, so "
            "nothing reads this option. Leave it out.",
        )
    metrics = [task.metric for task in tasks]
    if not options.is_replay:
        options.setups(metrics)  # refuses wrong options before a model or a benchmark is loaded
    policy = resolve_policy(
        options, options.engine, options.template, has_scorer=options.prm is not None
    )
    loaded_tasks = [
        limit_problems(load_task(task, options.data), options.limit, options.limit_seed)
        for task in tasks
    ]
    setups = options.setups(metrics, _count_recorded(options, policy, loaded_tasks))
    reward_model = None
    warnings: list[str] = []
    if names_with_rewards(setups):
        reward_model = _resolve_prm(options, setups)
        check_server_prompts(reward_model.weights, policy.engine)
        # A replayed model may be unknown.
        warnings += check_tokenizer(reward_model.weights, policy.model if options.model else None)
        setups = [_with_default_aggregate(setup, options, reward_model) for setup in setups]
        if any(setup.decoder.origin == "beam" for setup in setups):
            # The stage that scores samples warns itself.
            warn_about_template(reward_model.weights, policy.model.template.ref)
    run = make_run(
        options,
        loaded_tasks,
        setups,
        policy,
        reward_model,
        answer_judge=resolve_answer_judge(options.judge),
    )
    warnings += [warning for loaded in loaded_tasks for warning in loaded.warnings]
    return replace(run, warnings=warnings)


def _count_recorded(
    options: RunOptions, policy: ResolvedPolicy, loaded_tasks: Sequence[LoadedTask]
) -> int:
    """Return the number of recorded completions of each problem; 1 without a recording."""
    if options.engine.replay is None:
        return 1
    render_prompt = policy.model.template.render
    prompts = {
        render_prompt(problem.question) for loaded in loaded_tasks for problem in loaded.problems
    }
    return count_completions(Path(options.engine.replay), prompts)


def make_run(
    options: RunOptions,
    loaded_tasks: Sequence[LoadedTask],
    setups: Sequence[DecoderSetup],
    policy: ResolvedPolicy,
    reward_model: ResolvedRewardModel | None = None,
    *,
    answer_judge: AnswerJudge | None = None,
) -> BenchmarkRun:
    """Return the run of resolved models on loaded benchmarks.

    Args:
        options: The options of the run.
        loaded_tasks: The benchmarks with the problems to solve.
        setups: The decoders.
        policy: The model that writes the solutions.
        reward_model: The reward model; None if no decoder needs rewards.
        answer_judge: Decides undecided answers; None without a judge.

    Raises:
        InputError: if two benchmarks grade one problem differently.
    """
    builder = _PartBuilder(options, benchmark_problems(loaded_tasks), policy, reward_model)
    parts = {setup.part: builder.make_part(setup, setups) for setup in setups}
    return BenchmarkRun(
        record=RunRecord(
            decoders=[setup.name for setup in setups],
            parts=list(parts),
            benchmarks={
                loaded.task.name: BenchmarkEntry(
                    task=loaded.task,
                    problems=len(loaded.problems),
                    digest=loaded.digest,
                    selected=problems_digest(loaded.ids),
                    source=loaded.ref,
                )
                for loaded in loaded_tasks
            },
        ),
        parts=parts,
        close_engines=builder.close_engines,
        answer_judge=answer_judge,
    )


def _resolve_prm(options: RunOptions, setups: Sequence[DecoderSetup]) -> ResolvedRewardModel:
    """Resolve the process reward model, and check that its rewards fit the decoders.

    Raises:
        InputError: if it is not a process reward model, or a decoder needs probabilities.
    """
    scorer_options = options.engine.scorer_options(
        scorer_engine_for(options.engine.engine), options.prm_format
    )
    reward_model = resolve_reward_model(str(options.prm), scorer_options, model_count=2)
    weights = reward_model.weights
    needs_probabilities = [
        setup.decoder.name for setup in setups if setup.decoder.needs == "probabilities"
    ]
    if (
        needs_probabilities
        and isinstance(weights, PublishedPrm)
        and not weights.prm_format.is_probability
    ):
        alternatives = [
            decoder.name for decoder in DECODERS.importable_entries() if decoder.needs == "rewards"
        ]
        raise InputError(
            f"votes are weighed by probabilities, but a reward of {weights.prm_format.name} is a "
            f"{weights.prm_format.meaning}. Use the decoder {' or '.join(alternatives)}.",
            field="decoder",
            value=",".join(dict.fromkeys(needs_probabilities)),
        )
    return reward_model


def _with_default_aggregate(
    setup: DecoderSetup, options: RunOptions, reward_model: ResolvedRewardModel
) -> DecoderSetup:
    """Return a decoder with the aggregate of the reward model, if the options name none."""
    if not setup.aggregate or options.aggregate:
        return setup
    return replace(setup, aggregate=model_aggregate(reward_model.weights))


def check_tokenizer(prm: ResolvedWeights, policy: ResolvedWeights | None) -> list[str]:
    """Check that the tokenizer of a process reward model fits its weights; return warnings.

    A vocabulary that differs from the policy's only gives a warning, because the reward model reads
    text. It may mean that the reward model belongs to another policy.

    Raises:
        InputError: if the tokenizer has more token ids than the embedding.
    """
    vocabulary = load_tokenizer(prm.path, prm.commit).get_vocab()
    vocabulary_size = load_config(prm).vocab_size
    max_token_id = max(vocabulary.values())
    if max_token_id >= vocabulary_size:
        raise InputError(
            f"the tokenizer has ids up to {max_token_id}, but the weights have only "
            f"{vocabulary_size} tokens, so the reward model was trained with another tokenizer. "
            "Copy the tokenizer files of its base model into its directory.",
            field="prm",
            value=str(prm.path),
        )
    if policy is None or policy.ref.revision == SERVED_REVISION:
        return []  # a server has its own tokenizer
    if vocabulary == load_tokenizer(policy.path, policy.commit).get_vocab():
        return []
    return [
        f"the reward model {prm.ref.name} has another vocabulary than {policy.ref.name}; it was "
        "most likely trained on another model's solutions"
    ]


class _SearchLoader(EngineLoader[Sampler]):
    """Loads a search from shared models, which it neither keeps nor closes."""

    def __call__(self) -> Sampler:
        """Return a new search."""
        return self._load()


class _PartBuilder:
    """Makes the parts of a run, which share the problems and the loaded models."""

    def __init__(
        self,
        options: RunOptions,
        problems: ProblemSet,
        policy: ResolvedPolicy,
        reward_model: ResolvedRewardModel | None,
    ) -> None:
        self._options = options
        self._problems = problems
        sampler_loader = EngineLoader(policy.make_sampler)
        self._policy = replace(policy, make_sampler=sampler_loader)
        self._loaders: list[EngineLoader[Any]] = [sampler_loader]
        self._reward_model = reward_model
        if reward_model is not None:
            scorer_loader = EngineLoader(reward_model.make_scorer)
            self._reward_model = replace(reward_model, make_scorer=scorer_loader)
            self._loaders.append(scorer_loader)

    def make_part(self, setup: DecoderSetup, setups: Sequence[DecoderSetup]) -> RunPart:
        """Return the part with the solutions from which a decoder chooses.

        Args:
            setup: The decoder.
            setups: All decoders of the run, which may share the part.
        """
        sampling = self._options.sampling
        origin = setup.decoder.origin
        if origin == "greedy":
            return RunPart(self._make_job(n=1, temperature=0.0))
        if origin == "beam":
            assert self._reward_model is not None  # the decoder needs rewards
            beam = self._options.beam.replace(b2=setup.b2)
            search = SolutionSearch(origin, self._reward_model, beam)
            return RunPart(self._make_job(n=1, temperature=sampling.temperature, search=search))
        sharing = [other for other in setups if other.part == setup.part]
        n = max(other.k for other in sharing)
        stages: list[Stage] = []
        if self._reward_model is not None and names_with_rewards(sharing):
            stages.append(ScoreStage(self._reward_model, self._options.failure_policy))
        return RunPart(self._make_job(n=n, temperature=sampling.temperature), stages)

    def close_engines(self) -> None:
        """Free the loaded models."""
        for loader in self._loaders:
            loader.close()

    def _make_job(
        self, *, n: int, temperature: float, search: SolutionSearch | None = None
    ) -> BuildJob:
        """Return a build that leaves the models loaded."""
        job = make_build_job(
            self._policy,
            self._problems,
            sampling=self._options.sampling.replace(n=n, temperature=temperature),
            segmenter=segmenter_name(self._options.segmenter),
            search=search,
            workers=self._options.workers,
            failure_policy=self._options.failure_policy,
        )
        if search is None:
            return job
        loader = _SearchLoader(job.policy.make_sampler)
        return replace(job, policy=replace(job.policy, make_sampler=loader))


def execute_run(run: BenchmarkRun, out: Path, *, resume: bool = False, progress: Progress) -> None:
    """Write the datasets of a run that are missing, and then ``run.json``.

    A judge needs the memory of the other models. So all parts are first built, in a folder of their
    own, and the judged datasets derive from them.

    Raises:
        RunMismatchError: if ``out`` contains another run.
        StoreError: if the disk fails; records that were written stay valid.
        FailedItemsError: if more problems fail than the options allow.
    """
    with lock_run_directory(out, run.config, resume=resume):
        # The lock has checked the config, so everything in the directory belongs to this run.
        folder = run.build_folder(out)
        try:
            for name, part in run.parts.items():
                build(part.job, folder / name, part.stages, resume=True, progress=progress)
        finally:
            run.close_engines()
        if run.answer_judge is not None:
            _judge_parts(run, run.answer_judge, out, progress)
        write_run_record(out, run.record)


def _judge_parts(run: BenchmarkRun, judge: AnswerJudge, out: Path, progress: Progress) -> None:
    """Write the datasets of a run with the decisions of a judge on undecided answers."""
    loader = EngineLoader(judge.reply_sampler.make_sampler)
    reply_sampler = replace(judge.reply_sampler, make_sampler=loader)
    shared_judge = replace(judge, reply_sampler=reply_sampler)
    try:
        for name, part in run.parts.items():
            stage = GradeStage(
                grader=get_grader().version, workers=part.job.workers, answer_judge=shared_judge
            )
            _judge_part(part, stage, out / BUILD_FOLDER / name, out / name, progress)
    finally:
        loader.close()


def _judge_part(
    part: RunPart, stage: GradeStage, source: Path, out: Path, progress: Progress
) -> None:
    """Write the dataset of a part with the decisions of a judge."""
    config = part.job.config_with([*part.stages, stage])
    with lock_run_directory(out, config, resume=True):
        is_sealed = (out / MANIFEST_FILE).exists()
        if is_sealed and read_manifest(out).parent != read_manifest(source).digest:
            discard_dataset(out)  # problems that failed before have solutions now
        run_stages(source, out, [stage], progress)


def describe_failures(
    out: Path, parts: Sequence[str], *, location: str | Path, is_merge: bool = False
) -> list[str]:
    """Return a sentence on the failed problems and solutions of each part of a run.

    Args:
        out: The folder of the run.
        parts: Names of the datasets of the run.
        location: The folder or the URL of the run, for readers.
        is_merge: Whether the solutions are of merged shards.
    """
    warnings = []
    for name in parts:
        manifest = read_manifest(out / name)
        totals = {
            SAMPLE_STAGE: f"{manifest.rows.problems:,} problems",
            ScoreStage.name: f"{manifest.rows.solutions:,} solutions",
        }
        for stage, n_failed in manifest.failed.items():
            warnings.append(
                f"{name}: {n_failed:,} of {totals[stage]} failed and do not count; the files "
                f"{FAILURES_FILE} in {location} have the reasons. "
                + _describe_retry(stage, location, is_merge=is_merge)
            )
    return warnings


def _describe_retry(stage: str, location: str | Path, *, is_merge: bool) -> str:
    """Return the command that tries the failed items of a stage again, as a sentence."""
    if not is_merge:
        return "The same command with --resume tries them again"
    if stage == SAMPLE_STAGE:
        return "To try them again, resume the shards with --resume, and repeat the merge"
    return (
        "To try them again, repeat the command of a shard without --shard, with "
        f"--out {location} --resume"
    )
