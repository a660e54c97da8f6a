"""Turn the options of ``fsdpo-bench run`` into a job, and run it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fsdpo_bench.decode.decoders import DECODERS, DEFAULT_DECODER, FIRST_RESPONSE_DECODER
from fsdpo_bench.decode.plan import DecodingPlan
from fsdpo_bench.runs.options import RunOptions
from fsdpo_bench.runs.run import BenchJob, RunSpec, decode_tasks, limit_problems
from fsdpo_bench.tasks.load import LoadedTask, load_task
from fsdpo_bench.tasks.recorded import recorded_task, restrict_to_responses
from fsdpo_bench.tasks.table import Task, select_tasks
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.failures import FAILURES_FILE, read_failures
from fsdpo_data.core.identity import EngineRef, ModelRef, digest
from fsdpo_data.core.progress import progress
from fsdpo_data.engines.answer_judge import resolve_answer_judge
from fsdpo_data.engines.load import load_selected_sampler, load_selected_scorer
from fsdpo_data.engines.options import DEFAULT_MODEL
from fsdpo_data.engines.recorded_author import recording_digest, solution_author
from fsdpo_data.engines.registry import scorer_engine_for
from fsdpo_data.engines.samplers import LoadedSampler
from fsdpo_data.engines.samplers.replay import count_completions
from fsdpo_data.engines.scorers import Scorer
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm, reward_model_ref
from fsdpo_data.engines.selection import (
    select_sampler,
    select_sampler_with_scorer,
    select_scorer,
)
from fsdpo_data.engines.weights import resolve_model, resolve_prm
from fsdpo_data.models.checkpoints import load_config
from fsdpo_data.models.prompts import RECORDED_TEMPLATE, Template, get_template, load_tokenizer
from fsdpo_data.models.resolve import (
    SERVED_REVISION,
    ResolvedModel,
    ResolvedWeights,
    resolve_weights,
)
from fsdpo_data.recorded.response_file import ResponseFile, TemplatedScorer, read_response_file
from fsdpo_data.steps.rewards import DEFAULT_AGGREGATE
from fsdpo_data.steps.segment import segmenter_name

Warn = Callable[[str], None]  #: Receives remarks for readers of the results.


def _ignore_warning(message: str) -> None:
    """Drop a warning."""


def run_job(options: RunOptions, warn: Warn = _ignore_warning) -> Path:
    """Check the options, decode, and return the run directory.

    See :func:`fsdpo_bench.run`, which also writes the reports.
    """
    # A file of completions by prompt, as `fsdpo-data build` writes, replays like a model. Other
    # files of responses contain their own questions and golds.
    response_file = None
    if options.engine.replay is not None:
        response_file = read_response_file(Path(options.engine.replay), options.series)
    if response_file is None:
        job = _sampling_job(options, warn)
    else:
        job = _replay_job(options, response_file, warn)
    for loaded in job.tasks:
        for warning in loaded.warnings:
            warn(warning)
    model_name = re.sub(r"[^\w.-]+", "-", job.spec.model.name).strip("-.") or "model"
    out = options.out or Path("runs") / f"bench-{model_name}-{digest(job.config)[:8]}"
    with progress() as progress_bar:
        decode_tasks(job, out, resume=options.resume, progress=progress_bar)
    n_failed = sum(1 for _ in read_failures(out))
    if n_failed:
        n_problems = sum(len(loaded.problems) for loaded in job.tasks)
        warn(
            f"{n_failed:,} of {n_problems:,} problems failed and do not count; "
            f"{out / FAILURES_FILE} has the reasons, and the same command with --resume tries them "
            "again"
        )
    return out


class _PrmLoader(NamedTuple):
    """A reward model that is checked, but not loaded."""

    load: Callable[[], Scorer]  #: Loads the reward model.
    entry: dict[str, Any] | None  #: The reward model in the config of the run.
    format_evidence: str = ""  #: How the PRM format was recognised; empty without a PRM format.
    aggregate: str = DEFAULT_AGGREGATE  #: The default aggregate of the PRM format.


def _sampling_job(options: RunOptions, warn: Warn) -> BenchJob:
    """Return the job of a run that samples, or replays completions by prompt."""
    tasks = options.rows.apply(select_tasks(options.suite, options.task))
    n_recorded = count_completions(Path(options.engine.replay)) if options.engine.replay else 1
    plan = options.plan([task.metric for task in tasks], n_recorded)
    if options.model is None and not options.is_replay:
        raise InputError(
            "missing: give a short name, org/name on the Hub, or a directory.", field="model"
        )
    if plan.needs_prm and options.prm is None:
        raise InputError(
            f"the decoders {', '.join(plan.reward_decoders)} need step rewards. Give a process "
            "reward model as `prm`, e.g. one from fsdpo-train prm, or remove these decoders.",
            field="decoder",
            value=",".join(plan.decoders),
        )
    is_replay = options.engine.replay is not None  # a recording may have the continuations
    if plan.continuation_decoders and not (is_replay or options.engine.can_continue_text):
        raise InputError(
            f"the engine {options.engine.engine} cannot continue a text, which the decoder does. "
            "Remove the decoder, or use another engine; servers need `api=completions`.",
            field="decoder",
            value=",".join(plan.continuation_decoders),
        )
    is_model_named = options.model is not None
    model = resolve_model(options.model or DEFAULT_MODEL, options.engine, options.template)
    select = select_sampler_with_scorer if plan.needs_prm else select_sampler
    selection = select(options.engine)
    scorer = _PrmLoader(_load_no_scorer, None)
    if plan.needs_prm:
        scorer = _prepare_scorer(options, plan, model, warn)
        plan = replace(plan, aggregate=options.aggregate or scorer.aggregate)
    spec = _make_spec(
        options,
        author=solution_author(options, model.ref, is_model_named=is_model_named),
        template=model.template,
        engine=_with_recording(selection.ref, options, is_model_named=is_model_named).to_dict(),
        plan=plan,
        prm=scorer.entry,
    )
    loaded_tasks = [load_task(task, options.data) for task in tasks]
    return BenchJob(
        spec=spec,
        tasks=_limit_tasks(loaded_tasks, options),
        make_sampler=partial(load_selected_sampler, selection, model),
        make_scorer=scorer.load,
        batch_size=options.engine.batch_size or selection.batch_size,
        workers=options.workers,
        format_evidence=scorer.format_evidence,
        failure_policy=options.failure_policy,
    )


def _limit_tasks(tasks: Sequence[LoadedTask], options: RunOptions) -> list[LoadedTask]:
    """Return the tasks with at most ``limit`` problems each."""
    return [limit_problems(loaded, options.limit, options.limit_seed) for loaded in tasks]


def _load_no_scorer() -> Scorer:
    """Fail: a plan without step rewards loads no reward model."""
    raise AssertionError("a plan without step rewards requested a scorer")


def _prepare_scorer(
    options: RunOptions, plan: DecodingPlan, model: ResolvedModel | None, warn: Warn
) -> _PrmLoader:
    """Resolve and check the process reward model.

    Args:
        options: The options of the run.
        plan: The decoders of the run.
        model: The policy; None for recorded responses, whose prompts are bare questions.
        warn: Receives warnings.

    Raises:
        InputError: if the reward model cannot be used, or needs a template.
    """
    scorer_options = options.engine.scorer_options(
        scorer_engine_for(options.engine.engine), options.prm_format
    )
    prm = resolve_prm(str(options.prm), scorer_options)
    selection = select_scorer(scorer_options, prm, model_count=2)
    check_tokenizer(prm, None if options.model is None else model, warn)
    prm_format = prm.prm_format if isinstance(prm, PublishedPrm) else None
    if prm_format is not None and not prm_format.is_probability and plan.probability_decoders:
        alternatives = [
            decoder.name
            for decoder in DECODERS.importable_entries()
            if decoder.needs_rewards and not decoder.needs_probabilities
        ]
        raise InputError(
            f"votes are weighed by probabilities, but a reward of {prm_format.name} is a "
            f"{prm_format.meaning}. Use the decoder {' or '.join(alternatives)}.",
            field="decoder",
            value=",".join(plan.probability_decoders),
        )
    aggregate = prm_format.aggregate if prm_format is not None else DEFAULT_AGGREGATE
    entry = {
        **asdict(prm.ref),
        "engine": selection.ref.to_dict(),
        **reward_model_ref(prm).to_dict(),
    }
    del entry["prm"]
    evidence = prm.format_evidence if isinstance(prm, PublishedPrm) else ""
    load: Callable[[], Scorer] = partial(load_selected_scorer, selection, prm)
    if model is not None or (prm_format is not None and prm_format.has_own_prompt):
        return _PrmLoader(load, entry, evidence, aggregate)
    if options.template is None:
        raise InputError(
            "missing: the recorded responses have no prompts. Give the prompt template of the "
            "reward model's training data.",
            field="template",
        )
    template = get_template(options.template, prm.path, revision=prm.commit)
    entry["template"] = template.ref.to_dict()
    return _PrmLoader(lambda: TemplatedScorer(load(), template), entry, evidence, aggregate)


def _with_recording(engine: EngineRef, options: RunOptions, *, is_model_named: bool) -> EngineRef:
    """Return an engine with the digest of its recording, if the author is unknown."""
    recording = recording_digest(options, is_model_named=is_model_named)
    return engine.model_copy(update={"recording": recording})


def _replay_job(options: RunOptions, response_file: ResponseFile, warn: Warn) -> BenchJob:
    """Return the job of a run over responses that other tools recorded."""
    tasks: list[Task] = []
    if options.suite or options.task:
        tasks = options.rows.apply(select_tasks(options.suite, options.task))
    if options.data is not None and not tasks:
        raise InputError(
            "the responses are graded with the golds in their own file. Add `task` or `suite`, "
            "or remove `data`.",
            field="data",
            value=str(options.data),
        )
    n_recorded = response_file.min_responses
    plan = options.plan([task.metric for task in tasks], n_recorded)
    if DEFAULT_DECODER in plan.decoders and n_recorded > 1:
        warn(
            f"{response_file.file.name} has at least {n_recorded} responses to each problem, and "
            f"`{DEFAULT_DECODER}` takes the first; if it is a random sample, use "
            f"`decoder={FIRST_RESPONSE_DECODER}`"
        )
    if plan.continuation_decoders:
        raise InputError(
            "recorded responses cannot be continued. Remove the decoder, or run a model.",
            field="decoder",
            value=",".join(plan.continuation_decoders),
        )
    needs_recorded_rewards = plan.needs_prm and options.prm is None
    response_file.check_responses(max(1, plan.n_samples), rewards=needs_recorded_rewards)
    loaded_tasks = [
        restrict_to_responses(load_task(task, options.data), response_file) for task in tasks
    ]
    if not tasks:
        loaded_tasks = [recorded_task(response_file)]
    model = response_file.model if options.model is None else resolve_weights(options.model).ref
    is_model_named = options.model is not None
    title = response_file.model.name if options.series is not None else ""
    if options.prm is not None:
        scorer = _prepare_scorer(options, plan, None, warn)
        plan = replace(plan, aggregate=options.aggregate or scorer.aggregate)
    else:
        entry = {**asdict(response_file.model), "engine": {"name": options.engine.engine}}
        scorer = _PrmLoader(lambda: response_file, entry)
    spec = _make_spec(
        options,
        author=solution_author(options, model, is_model_named=is_model_named, title=title),
        template=RECORDED_TEMPLATE,
        engine=_with_recording(
            EngineRef(name=options.engine.engine, dtype="auto"),
            options,
            is_model_named=is_model_named,
        ).to_dict(),
        plan=plan,
        prm=scorer.entry if plan.needs_prm else None,
    )
    return BenchJob(
        spec=spec,
        tasks=_limit_tasks(loaded_tasks, options),
        make_sampler=lambda: LoadedSampler(response_file, can_continue=False),
        make_scorer=scorer.load,
        batch_size=options.engine.batch_size or options.engine.engine_entry.batch_size,
        workers=options.workers,
        format_evidence=scorer.format_evidence,
        failure_policy=options.failure_policy,
    )


def _make_spec(
    options: RunOptions,
    author: ModelRef,
    template: Template,
    engine: Mapping[str, str],
    plan: DecodingPlan,
    prm: Mapping[str, Any] | None,
) -> RunSpec:
    """Return the spec of a run.

    Args:
        options: The options of the run.
        author: The model that writes the solutions.
        template: The prompt template.
        engine: The engine in the config of the run.
        plan: The decoders.
        prm: The reward model in the config of the run; None without a reward model.
    """
    sampling = replace(options.sampling, n=max(1, plan.n_samples), stop=template.stop)
    return RunSpec(
        model=author,
        template=template,
        sampling=sampling,
        engine=engine,
        segmenter=segmenter_name(options.segmenter),
        plan=plan,
        prm=prm,
        unknown_fields=options.unknown_fields,
        answer_judge=resolve_answer_judge(options),
    )


def check_tokenizer(prm: ResolvedWeights, policy: ResolvedWeights | None, warn: Warn) -> None:
    """Check that the tokenizer of a process reward model fits its weights.

    A vocabulary that differs from the policy's only gives a warning, because the reward model reads
    text. It may mean that the reward model belongs to another policy.

    Raises:
        InputError: if the tokenizer has more token ids than the embedding.
    """
    tokenizer = load_tokenizer(prm.path, prm.commit)
    vocabulary = tokenizer.get_vocab()
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
        return  # a replayed model may be unknown, and a server has its own tokenizer
    if vocabulary != load_tokenizer(policy.path, policy.commit).get_vocab():
        warn(
            f"the reward model {prm.ref.name} has another vocabulary than {policy.ref.name}; it "
            "was most likely trained on another model's solutions"
        )
