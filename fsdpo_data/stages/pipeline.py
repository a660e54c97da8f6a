"""The `build` command: sample, grade and label solutions; with a reward model, score and pair."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.command_line import check_read_options
from fsdpo_data.core.failures import STOP_AT_FIRST, FailurePolicy
from fsdpo_data.core.identity import digest
from fsdpo_data.core.job_shard import JobShard
from fsdpo_data.core.options import Group, OnlyWith, Option
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.sampling import MAX_SEED, SamplingSpec
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.remote import local_paths
from fsdpo_data.dataset.stage import Stage
from fsdpo_data.dataset.stage_records import GradeSettings, SampleSettings, SearchSettings
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.engines.load import (
    ResolvedPolicy,
    ResolvedRewardModel,
    resolve_policy,
    resolve_reward_model,
)
from fsdpo_data.engines.options import (
    DEFAULT_MODEL,
    FailureOptions,
    PrmFormatName,
    ReplayOptions,
    SamplerOptions,
    Shard,
)
from fsdpo_data.engines.registry import SAMPLERS, SamplerNames, scorer_engine_for
from fsdpo_data.engines.samplers import LoadedSampler
from fsdpo_data.models.checkpoints import pick_device
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.problems.load import ProblemSet, load_problems
from fsdpo_data.problems.row_formats import RowReading
from fsdpo_data.stages.pair import PairStage
from fsdpo_data.stages.sample import BuildJob, BuildSettings, build, build_shard
from fsdpo_data.stages.score import ScoreStage, warn_about_template
from fsdpo_data.steps.rewards import OUTCOME_LABELS, default_pair_aggregate
from fsdpo_data.steps.segment import SEGMENTERS, segmenter_name

log = logging.getLogger(__name__)

_SAMPLING_PANEL = "Sampling"
_ENGINE_PANEL = "Engine"
_BEAM_PANEL = "Step-wise beam search"
#: The sampler of independent solutions, which is the engine itself.
_PLAIN = "plain"
_ParallelSize = Annotated[int, Field(ge=1), Option(panel=_ENGINE_PANEL, in_digest=False)]


class BuildOptions(FailureOptions, ReplayOptions, RowReading):
    r"""Sample solutions, split them into steps, grade and label them, and write a dataset.

    If a build is interrupted, run the same command with `--resume` to continue.

    Examples:
        Use the embedded model and the embedded problems, offline:

            fsdpo-data build

        Use a published model and data sets:

            fsdpo-data build --model qwen2-7b-sft --problems gsm8k --problems math \
              --samples 32

        Use your own model and problems:

            fsdpo-data build --model ./my-sft --template alpaca \
              --problems train.jsonl --limit 200

        Score the steps and select preference pairs as well:

            fsdpo-data build --prm runs/prm --out runs/pairs

        Keep the best solution of a step-wise beam search for each problem:

            fsdpo-data build --sampler beam --prm runs/prm --b1 5 --b2 3 --samples 1

        Sample on all GPUs of a Ray cluster:

            RAY_ADDRESS=head:6379 fsdpo-data build --model qwen2-7b-sft --engine ray

        Use recorded responses of another model, with its sampling settings:

            fsdpo-data build --engine replay --replay responses.jsonl \
              --model-name 'GPT-9' --temperature 0.7
    """

    model: Annotated[str | None, Option(default_text=DEFAULT_MODEL)] = None
    """Short name (`fsdpo-data list models`), `org/name[@revision]` on the Hub, or a directory."""
    problems: Sequence[str] = ("embedded",)
    """`embedded`, `gsm8k`, `math`, `math-step-dpo-10k`, `org/name[@revision][:config]`, or a file
    or directory; may be given several times.
    """
    sampling: Annotated[
        SamplingSpec,
        Group(
            flags={"n": "samples"},
            panel=_SAMPLING_PANEL,
            panels={"n": ""},
            help={
                "n": "Solutions per problem.",
                "temperature": "Sampling temperature; 0 is greedy decoding.",
                "top_p": "Probability mass of nucleus sampling.",
                "max_tokens": "Maximum number of tokens per solution.",
                "seed": "Random seed. Sample i of a prompt depends only on the seed, the prompt "
                "and i.",
            },
        ),
    ] = SamplingSpec()
    """Sampling settings, without the stop strings of the template."""
    sampler: Annotated[
        str,
        Option(panel=_SAMPLING_PANEL, choices=SamplerNames(are_searches=True, first=(_PLAIN,))),
    ] = _PLAIN
    """`plain` samples solutions independently. `beam` returns the best solutions of a step-wise
    beam search with the reward model `prm`, the best one first.
    """
    beam: Annotated[BeamSpec, Group(panel=_BEAM_PANEL)] = BeamSpec()
    """Settings of the beam search."""
    limit: Annotated[int | None, Field(ge=1)] = None
    """Maximum number of problems; `limit_seed` selects them."""
    out: Annotated[
        str | Path | None,
        Option(default_text="runs/MODEL-DIGEST", in_digest=False, dataset="output"),
    ] = None
    """Directory of the new dataset, or a URL such as `s3://bucket/runs/demo`."""
    prm: str | None = None
    """Process reward model. With it, the build also scores the solutions and forms pairs. A beam
    search ranks partial solutions with it, and stores its rewards, but forms no pairs.
    """
    prm_format: PrmFormatName = None
    """PRM format of a published reward model: a name, or a TOML file."""
    top: Annotated[
        int | None, Field(ge=1), Option(default_text=str(PairSpec().top)), OnlyWith("prm")
    ] = None
    """With `--prm`: best and worst solutions per problem that form pairs: 4 give up to 16 pairs."""
    split: Annotated[str, Option(panel=_SAMPLING_PANEL)] = "train"
    """Split of the problems."""
    template: Annotated[
        str | None, Option(panel=_SAMPLING_PANEL, default_text="the template of the model")
    ] = None
    """Prompt template: a name (`fsdpo-data list templates`), a `.txt` file that contains
    `{question}`, or the directory of a dataset, whose template is used.
    """
    limit_seed: Annotated[int, Field(ge=0, le=MAX_SEED), Option(panel=_SAMPLING_PANEL)] = 0
    """Seed of the problems that `limit` selects, and of the embedded problems. The problems do not
    depend on the seed of the samples.
    """
    segmenter: Annotated[str, Option(panel=_SAMPLING_PANEL, choices=SEGMENTERS)] = "auto"
    """Rule that splits a solution into steps. Most rules split only the answer, and thinking is one
    step.
    """
    grade_thinking: Annotated[bool, Option(panel=_SAMPLING_PANEL)] = False
    """If a solution has no text after its thinking, grade the answer that the thinking marks, for
    example in a box. By default such a solution has no answer.
    """
    tensor_parallel_size: _ParallelSize = 1
    """GPUs per replica of the model (vLLM)."""
    shard: Shard = None
    """Sample one of N parts of the problems; `fsdpo-data merge` joins the parts."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        self.check_prm_options(self.prm, self.prm_format)
        if self.limit is None and self.limit_seed and "embedded" not in self.problems:
            raise self.field_error(
                "limit_seed",
                "only `limit` and the embedded problems read this option. Give `limit`, or leave "
                "this option out.",
            )
        sampler_options(self)  # checks the sizes against the engine
        searches = SamplerNames(are_searches=True)
        read_options = {name: [*BeamSpec.model_fields] for name in searches}
        check_read_options(self.beam, "sampler", [self.sampler], read_options)
        if self.is_search:
            self._check_search()
        if self.shard is not None and self.prm is not None and not self.is_search:
            raise self.field_error(
                "prm",
                "a shard of a build contains only samples. Remove `prm`; score and pair the "
                "dataset that `fsdpo-data merge` writes.",
            )

    @property
    def is_search(self) -> bool:
        """Whether a search with a reward model finds the solutions."""
        return self.sampler != _PLAIN

    def _check_search(self) -> None:
        """Raise an InputError if the options do not allow a search."""
        if self.prm is None:
            raise self.field_error(
                "sampler", "the search ranks partial solutions by step rewards. Give `prm` too."
            )
        if not self.engine.can_continue_text:
            raise self.engine.field_error(
                "engine",
                "the engine cannot continue a text, which a search does. Use another engine; "
                "servers need `api=completions`.",
            )
        if self.top is not None:
            raise self.field_error(
                "top",
                "a search forms no pairs. Remove `top`; `fsdpo-data pair` reads the step rewards "
                "of the dataset.",
            )
        self.beam.check_sampling(self.sampling)


def sampler_options(options: BuildOptions) -> SamplerOptions:
    """Return the options of the sampler, with the size of vLLM that is a build option."""
    if options.tensor_parallel_size == 1:
        return options.engine
    size = f"tensor_parallel_size={options.tensor_parallel_size}"
    return options.engine.replace(engine_arg=(size, *options.engine.engine_arg))


def _make_stages(options: BuildOptions) -> list[Stage]:
    """Return the stages after sampling: with a reward model, score and pair.

    A search has the step rewards already.
    """
    if options.prm is None or options.is_search:
        return []
    policy_options = sampler_options(options)
    engine = scorer_engine_for(policy_options.engine, shares_memory=False)
    scorer_options = policy_options.scorer_options(engine, options.prm_format)
    reward_model = resolve_reward_model(options.prm, scorer_options)
    is_outcome_model = reward_model.settings.last_step_only
    pair_spec = PairSpec(
        top=PairSpec().top if options.top is None else options.top,
        aggregate=default_pair_aggregate(is_outcome_model=is_outcome_model),
    )
    return [ScoreStage(reward_model, options.failure_policy), PairStage(pair_spec)]


def run_build(options: BuildOptions, progress: Progress) -> tuple[str | Path, Manifest]:
    """Resolve the model and the problems, and build the dataset.

    Returns:
        The directory or the URL of the dataset, and its manifest.

    Raises:
        FsdpoError: if a model, a file or an engine is missing, or options conflict.
    """
    with local_paths(options, progress) as local_options:
        job = _make_job(local_options)
        stages = _make_stages(local_options)
        out = Path(local_options.out or _default_out(job, stages))
        manifest = build(job, out, stages, resume=options.resume, progress=progress)
    return options.out or out, manifest


def run_build_shard(options: BuildOptions, shard: JobShard, progress: Progress) -> Path:
    """Sample one shard of the problems of :func:`run_build`; return its directory.

    :func:`~fsdpo_data.stages.sample.build_shard` locks the directory.

    Raises:
        RunMismatchError: if the directory contains another run or another shard.
        FsdpoError: if a model, a file or an engine is missing, or options conflict.
    """
    job = _make_job(options)
    out = Path(options.out or f"{_default_out(job)}-{shard.index}-of-{shard.count}")
    build_shard(job, out, (), shard, resume=options.resume, progress=progress)
    return out


def limited_problems(options: BuildOptions) -> ProblemSet:
    """Load the problems of a build; the seed of its samples does not change them."""
    return load_problems(
        options.problems,
        split=options.split,
        limit=options.limit,
        seed=options.limit_seed,
        reading=options,
    )


def _make_job(options: BuildOptions) -> BuildJob:
    """Resolve model, problems and engine; the weights are loaded when they are needed."""
    _check_device(options)  # before any download
    segmenter = segmenter_name(options.segmenter)
    engine = sampler_options(options)
    policy = resolve_policy(options, engine, options.template, has_scorer=options.is_search)
    source = limited_problems(options)
    for warning in source.warnings:
        log.warning(warning)
    search = None
    if options.is_search:
        scorer_options = engine.scorer_options(scorer_engine_for(engine.engine), options.prm_format)
        reward_model = resolve_reward_model(str(options.prm), scorer_options, model_count=2)
        warn_about_template(reward_model.weights, policy.model.template.ref)
        search = SolutionSearch(options.sampler, reward_model, options.beam)
    return make_build_job(
        policy,
        source,
        sampling=options.sampling,
        segmenter=segmenter,
        search=search,
        grade_thinking=options.grade_thinking,
        workers=options.workers,
        failure_policy=options.failure_policy,
    )


class SolutionSearch(NamedTuple):
    """A beam search, which finds the solutions of a build."""

    sampler: str  #: Name of the beam search in ``SAMPLERS``.
    reward_model: ResolvedRewardModel  #: Ranks partial solutions.
    spec: BeamSpec  #: Settings of the search.


def make_build_job(
    policy: ResolvedPolicy,
    problems: ProblemSet,
    *,
    sampling: SamplingSpec,
    segmenter: str,
    search: SolutionSearch | None = None,
    grade_thinking: bool = False,
    workers: int | None = None,
    failure_policy: FailurePolicy = STOP_AT_FIRST,
) -> BuildJob:
    """Return a build of a policy that solves problems.

    Args:
        policy: The model that writes the solutions.
        problems: The problems.
        sampling: Sampling settings, without the stop strings of the template.
        segmenter: Full name of the segmenter.
        search: The search that finds the solutions; None to sample them independently.
        grade_thinking: Whether the grader also reads unfinished thinking.
        workers: Processes that grade; None for one per available core.
        failure_policy: When the build stops because of prompts that the engine refuses.
    """
    template = policy.model.template
    sample = SampleSettings(
        model=policy.author,
        template=template.ref,
        sampling=sampling.replace(stop=template.stop),
        unknown_fields=policy.unknown_fields,
        engine=policy.engine,
        segmenter=segmenter,
    )
    grade = GradeSettings(
        grader=get_grader().version, labels=OUTCOME_LABELS, grade_thinking=grade_thinking
    )
    job = BuildJob(
        spec=BuildSettings(sample, grade),
        source=problems,
        policy=policy,
        workers=workers,
        failure_policy=failure_policy,
    )
    return job if search is None else _with_search(job, search)


def _with_search(job: BuildJob, search: SolutionSearch) -> BuildJob:
    """Return a build whose solutions a search finds."""
    reward_model = search.reward_model
    sample = job.spec.sample
    entry = SAMPLERS[search.sampler]

    def make_sampler() -> LoadedSampler:
        """Load the policy and the reward model."""
        policy = job.policy.make_sampler()
        scorer = reward_model.make_scorer()
        searcher = entry.load(policy, scorer, sample.segmenter, search.spec)
        return LoadedSampler(searcher, can_continue=False)

    settings = SearchSettings(
        sampler=search.sampler, beam=search.spec, reward_model=reward_model.settings
    )
    spec = replace(
        job.spec,
        sample=sample.model_copy(update={"search": settings}),
        score=reward_model.settings,
    )
    return replace(
        job,
        spec=spec,
        policy=replace(job.policy, make_sampler=make_sampler),
        keeps_batches=entry.keeps_batches,
        format_evidence=reward_model.format_evidence,
    )


def _check_device(options: BuildOptions) -> None:
    """Raise an error if the device cannot run the model."""
    engine = options.engine
    if engine.device == "cpu" and engine.engine_entry.has_fixed_device:
        raise engine.field_error(
            "device",
            f"an installed {engine.engine} supports only one kind of device. Remove `device`.",
        )
    is_local = not engine.uses_ray and engine.engine_entry.needs_model
    if engine.device == "cuda" and is_local and find_spec("torch"):
        pick_device("cuda")


def _default_out(job: BuildJob, stages: Sequence[Stage] = ()) -> Path:
    """Return ``runs/MODEL-DIGEST``; the digest covers the options of all stages."""
    return Path("runs") / f"{job.model_folder}-{digest(job.config_with(stages))[:8]}"
