"""The whole way in one run: sample, grade, label, score, pair, sealed once at the end."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import digest
from fsdpo_data.core.job_shard import JobShard
from fsdpo_data.core.options import Option
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.dataset.derive import Stage, plain_specs, write_derived
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.run import claim
from fsdpo_data.engines.load import Host
from fsdpo_data.engines.options import SamplerOptions, ScorerOptions, Shard
from fsdpo_data.engines.samplers import Sampler, release
from fsdpo_data.models.checkpoints import pick_device
from fsdpo_data.models.resolve import resolve
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.problems.load import ProblemSet, load_problems
from fsdpo_data.stages.pair import PairStage
from fsdpo_data.stages.sample import BuildSpec, build, sample_shard
from fsdpo_data.stages.score import make_score_stage
from fsdpo_data.steps.segment import get_segmenter

log = logging.getLogger(__name__)

#: Folder of the sampled dataset, and of its raw completions, inside the run directory.
BUILD = "build"


def build_and_derive(
    spec: BuildSpec,
    source: ProblemSet,
    make_sampler: Callable[[], Sampler],
    out: Path,
    stages: Sequence[Stage],
    *,
    resume: bool = False,
    batch: int = 64,
    workers: int | None = None,
    progress: Progress,
) -> Manifest:
    """Build a dataset in ``out/build`` and seal in ``out`` what ``stages`` make of it.

    The directory belongs to the whole way from the first sample on: a run that is stopped at any
    stage goes on there, and one that asks for something else is refused before it samples.

    Args:
        spec: What to sample.
        source: The problems.
        make_sampler: Called only if samples are owed.
        out: Run directory.
        stages: What to make of the samples.
        resume: Whether to go on with a run that is there.
        batch: Problems per durable batch.
        workers: Processes for grading; the cores at hand if None.
        progress: Told of every batch.

    Returns:
        The manifest of the dataset in ``out``.

    Raises:
        InputError: if there is no problem to solve, or nothing to make of the solutions.
        RunMismatch: if ``out`` holds another run.
        StoreError: if the disk fails; what was written stays valid.
    """
    samplers: list[Sampler] = []

    def remembered() -> Sampler:
        samplers.append(make_sampler())
        return samplers[-1]

    config = {"build": spec.config(source.problems), "stages": plain_specs(stages)}
    with claim(out, config, resume=resume):
        build(
            spec,
            source,
            remembered,
            out / BUILD,
            resume=True,  # the directory is claimed: whatever is in it is of this run
            batch=batch,
            workers=workers,
            progress=progress,
        )
        for sampler in samplers:
            release(sampler)  # the next model may need the memory
        return write_derived(out / BUILD, out, stages, progress)


@dataclass(frozen=True, kw_only=True)
class BuildOptions(SamplerOptions):
    """Sample solutions, cut them into steps, grade and label them, seal the dataset.

    Stopped at any moment, the same command with `--resume` goes on where it was.

    Attributes:
        model: Short name (`fsdpo-data models`), `org/name[@revision]` on the Hub, or a directory.
        problems: `embedded`, `gsm8k`, `math`, `math-step-dpo-10k`, `org/name[@revision][:config]`,
            or a file or directory; may be given several times.
        samples: Solutions per problem (the paper's M).
        limit: Problems at most; the seed draws them.
        out: Run directory.
        prm: Process reward model: score the solutions too, and join pairs.
        top: With a PRM: solutions on each side of the pairs (the paper's T).
        split: Split of the problems.
        template: Prompt template (`fsdpo-data templates`).
        temperature: 0 is greedy.
        top_p: Nucleus mass.
        max_tokens: Tokens per solution at most.
        segmenter: `auto`, `step-marker`, `newline` or `blank-line`.
        tensor_parallel_size: GPUs that share one copy of the model (vLLM).
        data_parallel_size: Copies of the model, each on its own GPUs (vLLM).
        shard: Sample one of N shares of the problems; `fsdpo-data merge` puts the shards together.
    """

    model: str = "tiny"
    problems: Sequence[str] = ("embedded",)
    samples: Annotated[int, Option(sets="n")] = 32
    limit: Annotated[int | None, Option(min=1)] = None
    out: Annotated[str | Path | None, Option(default="runs/MODEL-DIGEST")] = None
    prm: str | None = None
    top: Annotated[int, Option(min=1)] = 4
    split: Annotated[str, Option(panel="Asking")] = "train"
    template: Annotated[str | None, Option(panel="Asking", default="the model's own")] = None
    temperature: Annotated[float, Option(panel="Asking")] = 0.8
    top_p: Annotated[float, Option(panel="Asking")] = 1.0
    max_tokens: Annotated[int, Option(panel="Asking")] = 1024
    segmenter: Annotated[str, Option(panel="Asking")] = "auto"
    tensor_parallel_size: Annotated[int, Option(min=1, panel="Engine")] = 1
    data_parallel_size: Annotated[int, Option(min=1, panel="Engine")] = 1
    shard: Shard = None

    @property
    def engine_args(self) -> dict[str, Any]:
        """Return what vLLM is asked for, short forms included."""
        sizes = {
            "tensor_parallel_size": self.tensor_parallel_size,
            "data_parallel_size": self.data_parallel_size,
        }
        asked = {name: size for name, size in sizes.items() if size != 1}
        return asked | super().engine_args

    @property
    def sampling(self) -> SamplingSpec:
        """Return how to sample, but for the model's stop strings."""
        return SamplingSpec(
            n=self.samples,
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_tokens,
            seed=self.seed,
        )

    def stages(self) -> list[Stage]:
        """Return what follows the samples: with a PRM, rewards and pairs."""
        if self.prm is None:
            return []
        engine = "auto" if self.engine == "scripted" else self.engine
        score = ScorerOptions(
            engine=engine, device=self.device, dtype=self.dtype, actors=self.actors
        )
        return [make_score_stage(self.prm, score), PairStage(PairSpec(top=self.top))]


@dataclass(frozen=True, slots=True)
class _Job:
    """A build that is ready to start.

    Attributes:
        spec: What to sample.
        source: The problems.
        make_sampler: Loads the model.
        batch: Problems per durable batch.
    """

    spec: BuildSpec
    source: ProblemSet
    make_sampler: Callable[[], Sampler]
    batch: int


def run_build(options: BuildOptions, progress: Progress) -> tuple[Path, Manifest]:
    """Do what ``options`` ask for, from names of models and problems to a sealed dataset.

    Returns:
        Its directory and manifest.

    Raises:
        FsdpoError: if something asked for does not exist, or cannot be done here.
    """
    job, stages = _prepared(options), options.stages()
    out = Path(options.out or _default_out(job.spec, job.source, stages))
    make = partial(build_and_derive, stages=stages) if stages else build
    manifest = make(
        job.spec,
        job.source,
        job.make_sampler,
        out,
        resume=options.resume,
        batch=job.batch,
        workers=options.workers,
        progress=progress,
    )
    return out, manifest


def run_build_shard(options: BuildOptions, shard: JobShard, progress: Progress) -> Path:
    """Do one job's part of :func:`run_build`; return its directory.

    Raises:
        InputError: with a process reward model, which comes after the merge.
        FsdpoError: if something asked for does not exist, or cannot be done here.
    """
    if options.prm is not None:
        raise InputError(
            "shards of a build hold samples alone. Leave it out; score and pair what "
            "`fsdpo-data merge` makes of them.",
            field="BuildOptions.prm",
            value=options.prm,
        )
    job = _prepared(options)
    suffix = f"-{shard.index}-of-{shard.count}"
    out = Path(options.out or f"{_default_out(job.spec, job.source, [])}{suffix}")
    sample_shard(
        job.spec,
        job.source,
        job.make_sampler,
        out,
        shard,
        resume=options.resume,
        batch=job.batch,
        progress=progress,
    )
    return out


def _prepared(options: BuildOptions) -> _Job:
    """Resolve model, problems and engine; the weights are loaded when they are needed."""
    _check_device(options)
    sampling, (segmenter, _) = options.sampling, get_segmenter(options.segmenter)
    model = resolve(options.model, options.template)
    source = load_problems(
        options.problems, split=options.split, limit=options.limit, seed=options.seed
    )
    for warning in source.warnings:
        log.warning(warning)
    host = Host.pick(options)
    spec = BuildSpec(
        model=model.ref,
        sources=tuple(source.refs),
        template=model.template,
        sampling=replace(sampling, stop=model.stop),
        engine=host.engine,
        dtype=options.dtype,
        segmenter=segmenter,
        grader=get_grader().version,
    )
    batch = options.batch_size or host.batch_size
    return _Job(spec, source, lambda: host.load("sampler", model), batch)


def _check_device(options: BuildOptions) -> None:
    """Refuse what cannot run before anything is fetched."""
    if options.device == "cpu" and options.engine == "vllm":
        raise InputError(
            "vLLM runs on what it was built for. Leave it out.",
            field="BuildOptions.device",
            value="cpu",
        )
    here = not options.on_cluster and options.replay is None
    if options.device == "cuda" and here and find_spec("torch"):
        pick_device("cuda")


def _default_out(spec: BuildSpec, source: ProblemSet, stages: Sequence[Stage]) -> Path:
    name = re.sub(r"[^\w.-]+", "-", spec.model.name).strip("-.") or "model"
    config = spec.config(source.problems)
    key = digest(config, plain_specs(stages)) if stages else digest(config)
    return Path("runs") / f"{name}-{key[:8]}"
