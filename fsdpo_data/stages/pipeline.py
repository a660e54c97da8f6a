"""The whole way in one run: sample, grade, label, score, pair, sealed once at the end."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.identity import digest
from fsdpo_data.core.job_shard import JobShard
from fsdpo_data.core.options import Option
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.run import RunDir
from fsdpo_data.dataset.stage import Stage, stage_specs
from fsdpo_data.engines.load import EngineSelection, resolve_model
from fsdpo_data.engines.options import PrmFormatName, ReplayOptions, Shard
from fsdpo_data.models.checkpoints import pick_device
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.problems.load import load_problems
from fsdpo_data.stages.pair import PairStage
from fsdpo_data.stages.sample import BuildJob, BuildSpec, build, sample_problems
from fsdpo_data.stages.score import make_score_stage
from fsdpo_data.steps.segment import segmenter_name

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class BuildOptions(ReplayOptions):
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
        prm_format: Convention of a published one, or a TOML file that says one.
        top: With a PRM: solutions on each side of the pairs (the paper's T).
        split: Split of the problems.
        template: Prompt template (`fsdpo-data templates`).
        temperature: 0 is greedy.
        top_p: Nucleus mass.
        max_tokens: Tokens per solution at most.
        max_think_tokens: Tokens of thinking, after which it is closed and the answer asked for.
        segmenter: `auto`, `step-marker`, `newline` or `blank-line`, with thinking as one step;
            `thinking` cuts that alone, by paragraphs, and `both` the answer too.
        grade_thinking: Thinking that never ends holds the answer that it marks; else it has none.
        tensor_parallel_size: GPUs that share one copy of the model (vLLM).
        data_parallel_size: Copies of the model, each on its own GPUs (vLLM).
        shard: Sample one of N shares of the problems; `fsdpo-data merge` puts the shards together.
    """

    model: Annotated[str | None, Option(default_text="tiny")] = None
    problems: Sequence[str] = ("embedded",)
    samples: Annotated[int, Option(spec_field="n")] = 32
    limit: Annotated[int | None, Option(min=1)] = None
    out: Annotated[str | Path | None, Option(default_text="runs/MODEL-DIGEST")] = None
    prm: str | None = None
    prm_format: PrmFormatName = None
    top: Annotated[int | None, Option(min=1, default_text="4")] = None
    split: Annotated[str, Option(panel="Asking")] = "train"
    template: Annotated[str | None, Option(panel="Asking", default_text="the model's own")] = None
    temperature: Annotated[float | None, Option(panel="Asking", default_text="0.8")] = None
    top_p: Annotated[float | None, Option(panel="Asking", default_text="1.0")] = None
    max_tokens: Annotated[int | None, Option(panel="Asking", default_text="1024")] = None
    max_think_tokens: Annotated[int | None, Option(panel="Asking", default_text="no limit")] = None
    segmenter: Annotated[str, Option(panel="Asking")] = "auto"
    grade_thinking: Annotated[bool, Option(panel="Asking")] = False
    tensor_parallel_size: Annotated[int, Option(min=1, panel="Engine")] = 1
    data_parallel_size: Annotated[int, Option(min=1, panel="Engine")] = 1
    shard: Shard = None

    @property
    def engine_args(self) -> dict[str, Any]:
        """Return what vLLM is asked for, short forms included."""
        names = ("tensor_parallel_size", "data_parallel_size")
        asked = {name: size for name in names if (size := getattr(self, name)) != 1}
        return asked | super().engine_args

    @property
    def sampling(self) -> SamplingSpec:
        """Return how to sample, but for the model's stop strings."""
        most = self.max_think_tokens
        if most is not None and (self.engine == "replay" or self.api == "chat"):
            raise self.field_error(
                "max_think_tokens",
                "a recording is as long as it is, and a conversation cannot go on in the middle of "
                "a text. Sample with another engine, or with `api=completions`.",
            )
        return SamplingSpec(
            n=self.samples, seed=self.seed, max_think_tokens=most, **self.declared_sampling
        )

    def stages(self) -> list[Stage]:
        """Return what follows the samples: with a PRM, rewards and pairs."""
        if self.prm is None and self.top is not None:
            raise self.field_error(
                "top", "pairs are chosen by step rewards. Give `prm` too, or leave it out."
            )
        if self.prm is None:
            return []
        engine = "auto" if self.engine in ("openai", "replay") else self.engine
        score = make_score_stage(self.prm, self.scorer_options(engine, self.prm_format))
        return [score, PairStage(PairSpec() if self.top is None else PairSpec(top=self.top))]


def run_build(options: BuildOptions, progress: Progress) -> tuple[Path, Manifest]:
    """Do what ``options`` ask for, from names of models and problems to a sealed dataset.

    Raises:
        FsdpoError: if something asked for does not exist, or cannot be done here.
    """
    job, stages = _make_job(options), options.stages()
    out = Path(options.out or _default_out(job, stages))
    return out, build(job, out, stages, resume=options.resume, progress=progress)


def run_build_shard(options: BuildOptions, shard: JobShard, progress: Progress) -> Path:
    """Sample one job's part of the problems of :func:`run_build`; return its directory.

    Raises:
        InputError: with a process reward model, which comes after the merge.
        RunMismatchError: if the directory holds another run or another shard.
        FsdpoError: if something asked for does not exist, or cannot be done here.
    """
    if options.prm is not None:
        raise options.field_error(
            "prm",
            "shards of a build hold samples alone. Leave it out; score and pair what "
            "`fsdpo-data merge` makes of them.",
        )
    job = _make_job(options)
    out = Path(options.out or f"{_default_out(job)}-{shard.index}-of-{shard.count}")
    with RunDir.open(out, {**job.config, "shard": str(shard)}, resume=options.resume) as run:
        sample_problems(run, job, shard.select(job.source.problems), progress)
    return out


def _make_job(options: BuildOptions) -> BuildJob:
    """Resolve model, problems and engine; the weights are loaded when they are needed."""
    # What cannot run is refused before anything is fetched.
    if options.device == "cpu" and options.engine == "vllm":
        raise options.field_error("device", "vLLM runs on what it was built for. Leave it out.")
    here = not options.uses_ray and options.replay is None
    if options.device == "cuda" and here and find_spec("torch"):
        pick_device("cuda")
    sampling, segmenter = options.sampling, segmenter_name(options.segmenter)
    model = resolve_model(options.model or "tiny", options, options.template)
    source = load_problems(
        options.problems, split=options.split, limit=options.limit, seed=options.seed
    )
    for warning in source.warnings:
        log.warning(warning)
    host = EngineSelection.select(options)
    named = options.model is not None
    spec = BuildSpec(
        model=options.author(model.ref, is_model_named=named),
        sources=tuple(source.refs),
        template=model.template,
        sampling=replace(sampling, stop=model.template.stop),
        engine=host.spec_entry | options.author_entry(is_model_named=named),
        segmenter=segmenter,
        grader=get_grader().version,
        unknown_fields=options.unknown_fields,
        grade_thinking=options.grade_thinking,
    )
    batch = options.batch_size or host.batch_size
    return BuildJob(spec, source, lambda: host.load("sampler", model), batch, options.workers)


def _default_out(job: BuildJob, stages: Sequence[Stage] = ()) -> Path:
    name = re.sub(r"[^\w.-]+", "-", job.spec.model.name).strip("-.") or "model"
    key = digest(job.config, *([stage_specs(stages)] if stages else []))
    return Path("runs") / f"{name}-{key[:8]}"
