"""Options of ``fsdpo-bench run`` to a spec, engines and benchmarks."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from fsdpo_bench.decode.plan import DecodingPlan
from fsdpo_bench.recorded.replay import ResponseFile, TemplatedScorer, read_recording
from fsdpo_bench.runs.options import RunOptions
from fsdpo_bench.runs.run import BenchJob, RunSpec, limit_problems, run
from fsdpo_bench.tasks.load import load_task
from fsdpo_bench.tasks.table import select_tasks
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef, digest
from fsdpo_data.core.progress import progress
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.load import EngineSelection, resolve_model, resolve_prm
from fsdpo_data.engines.registry import ENGINES, scorer_engine_for
from fsdpo_data.engines.scorers import Scorer
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm, format_entry
from fsdpo_data.models.checkpoints import load_config
from fsdpo_data.models.prompts import RECORDED_TEMPLATE, Template, get_template, load_tokenizer
from fsdpo_data.models.resolve import (
    SERVED_REVISION,
    ResolvedModel,
    ResolvedWeights,
    resolve_weights,
)
from fsdpo_data.steps.segment import segmenter_name

#: Share of a GPU's memory that vLLM may take for the policy where a reward model needs some too.
POLICY_GPU_FRACTION = 0.6


def run_job(options: RunOptions, warn: Callable[[str], None] = lambda text: None) -> Path:
    """Check the options, decode, and return the run's directory; see :func:`fsdpo_bench.run`."""
    # Completions by prompt, as `fsdpo-data build` records them, replay without anything known of
    # problems; other files of responses are benchmarks of their own.
    replay = options.replay
    recording = None if replay is None else read_recording(Path(replay), options.series)
    job = (
        _sampling_job(options, warn) if recording is None else _replay_job(options, recording, warn)
    )
    for part in job.parts:
        for warning in part.warnings:
            warn(warning)
    name = re.sub(r"[^\w.-]+", "-", job.spec.model.name).strip("-.") or "model"
    out = options.out or Path("runs") / f"bench-{name}-{digest(job.config)[:8]}"
    with progress() as shown:
        run(job, out, resume=options.resume, progress=shown)
    return out


def _sampling_job(options: RunOptions, warn: Callable[[str], None]) -> BenchJob:
    """Make a run that samples, or replays completions by prompt."""
    tasks = select_tasks(options.suite, options.task)
    plan = options.plan([task.metric for task in tasks])
    if options.model is None and options.replay is None:
        raise InputError("missing: give a short name, org/name or a directory.", field="model")
    if plan.needs_prm and options.prm is None:
        raise InputError(
            "it ranks by step rewards: give a process reward model as `prm`, one that "
            "fsdpo-train prm wrote, or leave weighted, bon and sbs out.",
            field="decoder",
            value=",".join(plan.decoders),
        )
    model = resolve_model(options.model or "tiny", options, options.template)
    # The reward model stands beside the policy on its GPU; by itself, vLLM leaves it no room.
    # Under Ray each has GPUs of its own.
    if plan.needs_prm and not options.uses_ray:
        share = f"gpu_memory_utilization={POLICY_GPU_FRACTION}"
        options = replace(options, engine_arg=(share, *options.engine_arg))
    host = EngineSelection.select(options, model_count=2 if plan.needs_prm else 1)
    load_scorer, scoring = (
        _scoring(options, plan.decoders, model, warn) if plan.needs_prm else (_no_scorer, None)
    )
    author = options.author(model.ref, is_model_named=options.model is not None)
    spec = _spec(options, author, model.template, host.spec_entry, plan, scoring)
    loaded = [load_task(task, options.data) for task in tasks]
    parts = [limit_problems(each, options.limit, options.seed) for each in loaded]
    size, load = options.batch_size or host.batch_size, partial(host.load, "sampler", model)
    return BenchJob(spec, parts, load, load_scorer, size, options.workers)


def _no_scorer() -> Scorer:
    raise AssertionError("a plan without rewards asked for a scorer")


def _scoring(
    options: RunOptions,
    plan: Sequence[str],
    model: ResolvedModel | None,
    warn: Callable[[str], None],
) -> tuple[Callable[[], Scorer], dict[str, Any]]:
    """Check the process reward model; return what loads it and how the run names it.

    Without a ``model``, responses are recorded, and prompts are bare questions.
    """
    how = options.scorer_options(scorer_engine_for(options.engine), options.prm_format)
    prm = resolve_prm(str(options.prm), how)
    host = EngineSelection.select_for_scorer(how, prm, model_count=2)
    check_tokenizer(prm, None if options.model is None else model, warn)
    if isinstance(prm, PublishedPrm) and not prm.prm_format.is_probability and "weighted" in plan:
        raise InputError(
            f"votes are weighed by probabilities, and a reward of {prm.prm_format.name} is a "
            f"{prm.prm_format.meaning}. Decode by bon or sbs.",
            field="decoder",
            value="weighted",
        )
    named = {**asdict(prm.ref), "engine": host.spec_entry, **format_entry(prm)}
    load: Callable[[], Scorer] = partial(host.load, "scorer", prm)
    if model is not None or (isinstance(prm, PublishedPrm) and prm.prm_format.has_own_prompt):
        return load, named
    if options.template is None:
        raise InputError(
            "missing: the recorded responses have no prompt; give the one that the reward model's "
            "training data had.",
            field="template",
        )
    template = get_template(options.template, prm.path, revision=prm.commit)
    named["template"] = {"name": template.name, "digest": template.digest}
    return lambda: TemplatedScorer(load(), template), named


def _replay_job(
    options: RunOptions, recording: ResponseFile, warn: Callable[[str], None]
) -> BenchJob:
    """Make a run over responses that were made elsewhere."""
    tasks = select_tasks(options.suite, options.task) if options.suite or options.task else []
    if options.data is not None and not tasks:
        raise InputError(
            "responses are graded by the golds beside them. Give `task` or `suite` too, or leave "
            "it out.",
            field="data",
            value=str(options.data),
        )
    plan = options.plan([task.metric for task in tasks])
    if plan.beams:
        raise InputError(
            "recorded responses cannot be continued; beams need a model.",
            field="decoder",
            value="sbs",
        )
    # Responses that are ranked have their rewards, unless a model is to give them.
    recording.check(max(1, plan.samples), rewards=plan.needs_prm and options.prm is None)
    found = [recording.restrict_to_task(load_task(task, options.data)) for task in tasks]
    parts = [
        limit_problems(part, options.limit, options.seed) for part in found or [recording.as_task()]
    ]
    named = recording.model if options.model is None else resolve_weights(options.model).ref
    author = options.author(
        named, is_model_named=options.model is not None or options.series is not None
    )
    make_scorer, scoring = (
        _scoring(options, plan.decoders, None, warn)
        if options.prm is not None
        else (lambda: recording, {**asdict(recording.model), "engine": {"name": "replay"}})
    )
    engine, prm = {"name": "replay", "dtype": "auto"}, scoring if plan.needs_prm else None
    spec = _spec(options, author, RECORDED_TEMPLATE, engine, plan, prm)
    size = options.batch_size or ENGINES["replay"].batch_size
    return BenchJob(spec, parts, lambda: recording, make_scorer, size, options.workers)


def _spec(
    options: RunOptions,
    author: ModelRef,
    template: Template,
    engine: Mapping[str, str],
    plan: DecodingPlan,
    prm: Mapping[str, Any] | None,
) -> RunSpec:
    """Return what decides a run: what is told, and what the options say of it."""
    engine = {**engine, **options.author_entry(is_model_named=options.model is not None)}
    segmenter = segmenter_name(options.segmenter)
    n, stated = max(1, plan.samples), options.declared_sampling
    sampling = SamplingSpec(n=n, seed=options.seed, stop=template.stop, **stated)
    return RunSpec(author, template, sampling, engine, segmenter, plan, prm, options.unknown_fields)


def check_tokenizer(
    prm: ResolvedWeights, policy: ResolvedWeights | None, warn: Callable[[str], None]
) -> None:
    """Refuse a process reward model whose tokenizer is not the one of its weights.

    One that merely differs from the policy's is fine (rewards are read off text), but seldom
    meant, so it is said.

    Raises:
        InputError: if its tokenizer has ids that its embedding does not.
    """
    tokenizer = load_tokenizer(prm.path, prm.commit)
    vocabulary = tokenizer.get_vocab()
    size = load_config(prm).vocab_size
    highest = max(vocabulary.values())
    if highest >= size:
        raise InputError(
            f"its tokenizer has ids up to {highest}, its weights know {size}. This is not the "
            "tokenizer it was trained with: copy the tokenizer files of the model it was trained "
            "from into its directory.",
            field="prm",
            value=str(prm.path),
        )
    if policy is None or policy.ref.revision == SERVED_REVISION:
        return  # nobody named the model that is replayed; the server has the tokenizer
    if vocabulary != load_tokenizer(policy.path, policy.commit).get_vocab():
        warn(
            f"the reward model {prm.ref.name} has another vocabulary than {policy.ref.name}; it "
            "was most likely trained on another model's solutions"
        )
