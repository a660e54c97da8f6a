"""The `build` command: sample, grade and label solutions; with a reward model, score and pair."""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.identity import digest
from fsdpo_data.core.job_shard import JobShard
from fsdpo_data.core.options import Group, Option, check_read_options
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.sampling import MAX_SEED, SamplingSpec
from fsdpo_data.dataset.build_records import GradeSettings, SampleSettings, SearchSettings
from fsdpo_data.dataset.derive import stage_options
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.remote import local_paths
from fsdpo_data.dataset.run import RunDir
from fsdpo_data.dataset.stage import Stage
from fsdpo_data.engines.beam_search import BeamSampler, BeamSpec
from fsdpo_data.engines.load import load_selected_sampler, load_selected_scorer
from fsdpo_data.engines.options import (
    DEFAULT_MODEL,
    FailureOptions,
    PrmFormatName,
    ReplayOptions,
    SamplerOptions,
    Shard,
)
from fsdpo_data.engines.recorded_author import recording_digest, solution_author
from fsdpo_data.engines.registry import scorer_engine_for
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm, reward_model_ref
from fsdpo_data.engines.selection import (
    select_sampler,
    select_sampler_with_scorer,
    select_scorer,
)
from fsdpo_data.engines.weights import resolve_model, resolve_prm
from fsdpo_data.models.checkpoints import pick_device
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.problems.load import ProblemSet, load_problems
from fsdpo_data.problems.row_formats import RowReading
from fsdpo_data.stages.pair import PairStage
from fsdpo_data.stages.sample import BuildJob, build, sample_problems
from fsdpo_data.stages.score import ScoreSettings, make_score_stage, score_settings
from fsdpo_data.steps.rewards import OUTCOME_LABELS
from fsdpo_data.steps.segment import SEGMENTER_NAMES, segmenter_name

log = logging.getLogger(__name__)

_SAMPLING_PANEL = "Sampling"
_ENGINE_PANEL = "Engine"
_BEAM_PANEL = "Step-wise beam search"
_ParallelSize = Annotated[int, Option(min=1, panel=_ENGINE_PANEL, in_digest=False)]


@dataclass(frozen=True, kw_only=True)
class BuildOptions(FailureOptions, ReplayOptions, RowReading):
    r"""Sample solutions, split them into steps, grade and label them, and seal the dataset.

    If a build is interrupted, run the same command with `--resume` to continue.

    Attributes:
        model: Short name (`fsdpo-data list models`), `org/name[@revision]` on the Hub, or a
            directory.
        problems: `embedded`, `gsm8k`, `math`, `math-step-dpo-10k`, `org/name[@revision][:config]`,
            or a file or directory; may be given several times.
        limit: Maximum number of problems; `limit_seed` selects them.
        out: Directory of the new dataset, or a URL such as `s3://bucket/runs/demo`.
        prm: Process reward model. With it, the build also scores the solutions and forms pairs. A
            beam search ranks partial solutions with it, and stores its rewards, but forms no pairs.
        prm_format: PRM format of a published reward model: a name, or a TOML file.
        top: With `--prm`: best and worst solutions per problem that form pairs (the paper's T).
        split: Split of the problems.
        template: Prompt template: a name (`fsdpo-data list templates`), a `.txt` file that contains
            `{question}`, or the directory of a dataset, whose template is used.
        sampling: Sampling settings, without the stop strings of the template.
        sampler: `plain` samples solutions independently. `beam` returns the best solutions of a
            step-wise beam search with the reward model `prm`, the best one first.
        beam: Settings of the beam search.
        limit_seed: Seed of the problems that `limit` selects, and of the embedded problems. The
            problems do not depend on the seed of the samples.
        segmenter: Rule that splits a solution into steps. Most rules split only the answer, and
            thinking is one step.
        grade_thinking: If a solution has no text after its thinking, grade the answer that the
            thinking marks, for example in a box. By default such a solution has no answer.
        tensor_parallel_size: GPUs per replica of the model (vLLM).
        data_parallel_size: Replicas of the model, each on its own GPUs (vLLM).
        shard: Sample one of N parts of the problems; `fsdpo-data merge` joins the parts.

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
    problems: Sequence[str] = ("embedded",)
    sampling: Annotated[
        SamplingSpec,
        Group(
            flags={"n": "samples"},
            panel=_SAMPLING_PANEL,
            panels={"n": ""},
            help={
                "n": "Solutions per problem (the paper's M).",
                "temperature": "Sampling temperature; 0 is greedy decoding.",
                "top_p": "Probability mass of nucleus sampling.",
                "max_tokens": "Maximum number of tokens per solution.",
                "seed": "Random seed. Sample i of a prompt depends only on the seed, the prompt "
                "and i.",
            },
            stated_field="stated_sampling",
        ),
    ] = SamplingSpec()
    sampler: Annotated[Literal["plain", "beam"], Option(panel=_SAMPLING_PANEL)] = "plain"
    beam: Annotated[BeamSpec, Group(flags={"aggregate": "beam_aggregate"}, panel=_BEAM_PANEL)] = (
        BeamSpec()
    )
    limit: Annotated[int | None, Option(min=1)] = None
    out: Annotated[
        str | Path | None,
        Option(default_text="runs/MODEL-DIGEST", in_digest=False, dataset="output"),
    ] = None
    prm: str | None = None
    prm_format: PrmFormatName = None
    top: Annotated[int | None, Option(min=1, default_text=str(PairSpec().top))] = None
    split: Annotated[str, Option(panel=_SAMPLING_PANEL)] = "train"
    template: Annotated[
        str | None, Option(panel=_SAMPLING_PANEL, default_text="the template of the model")
    ] = None
    limit_seed: Annotated[int, Option(min=0, max=MAX_SEED, panel=_SAMPLING_PANEL)] = 0
    segmenter: Annotated[str, Option(panel=_SAMPLING_PANEL, choices=SEGMENTER_NAMES)] = "auto"
    grade_thinking: Annotated[bool, Option(panel=_SAMPLING_PANEL)] = False
    tensor_parallel_size: _ParallelSize = 1
    data_parallel_size: _ParallelSize = 1
    shard: Shard = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_prm_options(self.prm, self.prm_format)
        sampler_options(self)  # checks the sizes against the engine
        beam_fields = [field.name for field in fields(self.beam)]
        check_read_options(self.beam, "sampler", [self.sampler], {"beam": beam_fields})
        if self.is_search:
            self._check_search()
        if self.top is not None and self.prm is None:
            raise self.field_error(
                "top", "pairs are chosen by step rewards. Give `prm` too, or remove `top`."
            )
        if self.shard is not None and self.prm is not None and not self.is_search:
            raise self.field_error(
                "prm",
                "a shard of a build contains only samples. Remove `prm`; score and pair the "
                "dataset that `fsdpo-data merge` writes.",
            )

    @property
    def is_search(self) -> bool:
        """Whether a search with a reward model finds the solutions."""
        return self.sampler == "beam"

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
    """Return the options of the sampler, with the arguments of vLLM that are build options."""
    sizes = {
        "tensor_parallel_size": options.tensor_parallel_size,
        "data_parallel_size": options.data_parallel_size,
    }
    arguments = [f"{name}={size}" for name, size in sizes.items() if size != 1]
    if not arguments:
        return options.engine
    return replace(options.engine, engine_arg=(*arguments, *options.engine.engine_arg))


def _make_stages(options: BuildOptions) -> list[Stage]:
    """Return the stages after sampling: with a reward model, score and pair.

    A search has the step rewards already.
    """
    if options.prm is None or options.is_search:
        return []
    policy_options = sampler_options(options)
    engine = scorer_engine_for(policy_options.engine, shares_memory=False)
    score_stage = make_score_stage(
        options.prm,
        policy_options.scorer_options(engine, options.prm_format),
        options.failure_policy,
    )
    pair_spec = PairSpec() if options.top is None else PairSpec(top=options.top)
    return [score_stage, PairStage(pair_spec)]


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

    Raises:
        RunMismatchError: if the directory contains another run or another shard.
        FsdpoError: if a model, a file or an engine is missing, or options conflict.
    """
    job = _make_job(options)
    out = Path(options.out or f"{_default_out(job)}-{shard.index}-of-{shard.count}")
    config = {**job.config, "shard": str(shard)}
    with RunDir.open(out, config, **job.run_arguments, resume=options.resume) as run:
        sample_problems(run, job, shard.select(job.source.problems), progress)
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
    model = resolve_model(options.model or DEFAULT_MODEL, engine, options.template)
    source = limited_problems(options)
    for warning in source.warnings:
        log.warning(warning)
    search = _resolve_search(options, engine, segmenter) if options.is_search else None
    selection = select_sampler_with_scorer(engine) if search else select_sampler(engine)
    is_model_named = options.model is not None
    recording = recording_digest(options, is_model_named=is_model_named)
    sampling = SampleSettings(
        # In a recording, another model than ``model`` may have written the solutions, and some
        # sampling settings may be unknown.
        model=solution_author(options, model.ref, is_model_named=is_model_named),
        template=model.template.ref,
        sampling=replace(options.sampling, stop=model.template.stop),
        unknown_fields=options.unknown_fields,
        engine=selection.ref.model_copy(update={"recording": recording}),
        segmenter=segmenter,
        search=search.settings if search else None,
    )
    grading = GradeSettings(
        grader=get_grader().version,
        labels=OUTCOME_LABELS,
        grade_thinking=options.grade_thinking,
    )

    def make_sampler() -> Sampler:
        """Load the policy, and the reward model of a search."""
        policy = load_selected_sampler(selection, model)
        return search.make_sampler(policy) if search else policy

    return BuildJob(
        sampling=sampling,
        grading=grading,
        source=source,
        make_sampler=make_sampler,
        render_prompt=lambda problem: model.template.render(problem.question),
        batch_size=engine.batch_size or selection.batch_size,
        workers=options.workers,
        failure_policy=options.failure_policy,
        keeps_batches=BeamSampler.keeps_batches if search else False,
        scoring=search.scoring if search else None,
        format_evidence=search.format_evidence if search else "",
    )


class _SearchLoader(NamedTuple):
    """A beam search whose reward model is checked, but not loaded."""

    settings: SearchSettings  #: The search and its reward model.
    scoring: ScoreSettings  #: The reward model with its engine, as a score stage states it.
    format_evidence: str  #: How the PRM format was recognised; empty without a PRM format.
    #: Loads the reward model, and returns the search with the policy.
    make_sampler: Callable[[Sampler], BeamSampler]


def _resolve_search(options: BuildOptions, engine: SamplerOptions, segmenter: str) -> _SearchLoader:
    """Resolve the reward model of a search next to the policy.

    Raises:
        InputError: if it is not a process reward model.
        UnavailableError: if its engine is not installed, or the model cannot be read.
    """
    scorer_options = engine.scorer_options(scorer_engine_for(engine.engine), options.prm_format)
    prm = resolve_prm(str(options.prm), scorer_options)
    selection = select_scorer(scorer_options, prm, model_count=2)
    return _SearchLoader(
        settings=SearchSettings(
            **reward_model_ref(prm).__dict__, sampler=options.sampler, beam=options.beam
        ),
        scoring=score_settings(prm, selection.ref),
        format_evidence=prm.format_evidence if isinstance(prm, PublishedPrm) else "",
        make_sampler=lambda policy: BeamSampler(
            policy, load_selected_scorer(selection, prm), segmenter, options.beam
        ),
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
    name = re.sub(r"[^\w.-]+", "-", job.sampling.model.name).strip("-.") or "model"
    key = digest(job.options | stage_options(stages))
    return Path("runs") / f"{name}-{key[:8]}"
