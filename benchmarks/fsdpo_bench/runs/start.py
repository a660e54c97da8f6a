"""Options of ``fsdpo-bench run`` to a spec, engines and benchmarks."""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fsdpo_bench.decode.plan import Plan
from fsdpo_bench.recorded.replay import QUESTION, Recording, read_recording
from fsdpo_bench.runs.options import RunOptions
from fsdpo_bench.runs.run import RunSpec, limited, run
from fsdpo_bench.tasks.load import Loaded, load_task
from fsdpo_bench.tasks.table import select_tasks
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import digest
from fsdpo_data.core.progress import progress
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.load import Host, resolve_model, resolve_prm
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.registry import ENGINES, scorer_beside
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.engines.scorers import Scorer
from fsdpo_data.models.checkpoints import load_config
from fsdpo_data.models.prompts import load_tokenizer
from fsdpo_data.models.resolve import SERVED, ResolvedModel, Weights, resolve_weights
from fsdpo_data.steps.segment import get_segmenter

#: Share of a GPU's memory that vLLM may take for the policy where a reward model needs some too.
POLICY_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class _Job:
    """A run that is ready to start."""

    spec: RunSpec
    parts: list[Loaded]
    make_sampler: Callable[[], Sampler]
    make_scorer: Callable[[], Scorer]
    batch_size: int


def run_job(options: RunOptions, warn: Callable[[str], None] = lambda text: None) -> Path:
    """Check the options, decode, and return the run's directory.

    ``warn`` is told of what a reader of the results should know, before anything is decoded.

    Raises:
        InputError: if an option cannot be used.
        Unavailable: if a library, a GPU, a model or the Hub is not here.
    """
    # Completions by prompt, as `fsdpo-data build` records them, replay without anything known of
    # problems; other files of responses are benchmarks of their own.
    replay = options.replay
    recording = None if replay is None else read_recording(Path(replay), options.series)
    job = _live(options, warn) if recording is None else _recorded(options, recording)
    for part in job.parts:
        for warning in part.warnings:
            warn(warning)
    name = re.sub(r"[^\w.-]+", "-", job.spec.model.name).strip("-.") or "model"
    key = digest(job.spec.config(job.parts))[:8]
    out = options.out or Path("runs") / f"bench-{name}-{key}"
    with progress() as shown:
        run(
            job.spec,
            job.parts,
            job.make_sampler,
            job.make_scorer,
            out,
            resume=options.resume,
            batch=options.batch_size or job.batch_size,
            workers=options.workers,
            progress=shown,
        )
    return out


def _live(options: RunOptions, warn: Callable[[str], None]) -> _Job:
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
    _refuse_needless(options.prm, plan.needs_prm)
    model = resolve_model(options.model or "tiny", options, options.template)
    # The reward model stands beside the policy on its GPU; by itself, vLLM leaves it no room.
    # Under Ray each has GPUs of its own.
    if plan.needs_prm and not options.on_cluster:
        share = f"gpu_memory_utilization={POLICY_SHARE}"
        options = replace(options, engine_arg=(share, *options.engine_arg))
    host = Host.pick(options, models=2 if plan.needs_prm else 1)
    load_scorer, scoring = _scoring(options, model, warn) if plan.needs_prm else (_no_scorer, None)
    spec = RunSpec(
        options.author(model.ref, named=options.model is not None),
        model.template,
        replace(_sampling(options, plan), stop=model.template.stop),
        host.named | options.author_kind(named=options.model is not None),
        get_segmenter(options.segmenter)[0],
        plan,
        scoring,
        options.unknown,
    )
    loaded = [load_task(task, options.data) for task in tasks]
    parts = [limited(each, options.limit, options.seed) for each in loaded]
    return _Job(spec, parts, lambda: host.load("sampler", model), load_scorer, host.batch_size)


def _refuse_needless(prm: str | None, needed: bool) -> None:
    if prm is not None and not needed:
        raise InputError(
            "no step reward is asked for. Choose a decoder that ranks by them (weighted, bon, "
            "sbs), or leave it out.",
            field="prm",
            value=prm,
        )


def _no_scorer() -> Scorer:
    raise AssertionError("a plan without rewards asked for a scorer")


def _scoring(
    options: RunOptions, model: ResolvedModel, warn: Callable[[str], None]
) -> tuple[Callable[[], Scorer], dict[str, Any]]:
    """Check the process reward model; return what loads it and how the run names it."""
    how = ScorerOptions(
        engine=scorer_beside(options.engine),
        device=options.device,
        dtype=options.dtype,
        actors=options.actors,
    )
    host, prm = Host.pick(how, models=2), resolve_prm(str(options.prm))
    check_tokenizer(prm, None if options.model is None else model, warn)
    named = {**asdict(prm.ref), "engine": host.named}
    return partial(host.load, "scorer", prm), named


def _recorded(options: RunOptions, recording: Recording) -> _Job:
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
    _refuse_needless(options.prm, needed=False)  # responses that are ranked have their rewards
    recording.check(max(1, plan.samples), rewards=plan.needs_prm)
    found = [recording.of_task(load_task(task, options.data)) for task in tasks]
    parts = [limited(part, options.limit, options.seed) for part in found or [recording.loaded()]]
    named = recording.model if options.model is None else resolve_weights(options.model).ref
    spec = RunSpec(
        options.author(named, named=options.model is not None or options.series is not None),
        QUESTION,
        _sampling(options, plan),
        {"name": "scripted", "dtype": "auto"}
        | options.author_kind(named=options.model is not None),
        get_segmenter(options.segmenter)[0],
        plan,
        {**asdict(recording.model), "engine": {"name": "scripted"}} if plan.needs_prm else None,
        options.unknown,
    )
    size = ENGINES["scripted"].batch_size
    return _Job(spec, parts, lambda: recording, lambda: recording, size)


def _sampling(options: RunOptions, plan: Plan) -> SamplingSpec:
    return SamplingSpec(n=max(1, plan.samples), seed=options.seed, **options.stated)


def check_tokenizer(prm: Weights, policy: Weights | None, warn: Callable[[str], None]) -> None:
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
    if policy is None or policy.ref.revision == SERVED:
        return  # nobody named the model that is replayed; the server has the tokenizer
    if vocabulary != load_tokenizer(policy.path, policy.commit).get_vocab():
        warn(
            f"the reward model {prm.ref.name} has another vocabulary than {policy.ref.name}; it "
            "was most likely trained on another model's solutions"
        )
