"""Plans of `build` and `score`: replicas, memory, tokens and hours, without a run.

A plan reads problems or a dataset, the tokenizer and the config of the model. Only a rate that is
not given loads the weights, and then samples or scores a few texts.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.job_shard import UNSHARDED, JobShard
from fsdpo_data.core.lazy import pl, torch
from fsdpo_data.core.registry import Registry
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.remote import local_copy
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.engines.load import load_sampler, load_scorer
from fsdpo_data.engines.options import (
    DEFAULT_MODEL,
    EngineOptions,
    EngineOptionsT,
    SamplerOptions,
    ScorerOptions,
)
from fsdpo_data.engines.registry import SAMPLERS, SCORERS, EntryT, choose_engine
from fsdpo_data.engines.samplers.base import close_engine
from fsdpo_data.engines.samplers.vllm import cpu_cache_bytes
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm
from fsdpo_data.engines.weights import resolve_model, resolve_prm
from fsdpo_data.models.checkpoints import MAX_CPU_BATCH_TOKENS, load_config
from fsdpo_data.models.resolve import ResolvedWeights
from fsdpo_data.models.untrusted import read_tokenizer
from fsdpo_data.planning.memory import (
    MemoryEstimate,
    ModelSize,
    inference_memory,
    model_size,
    vllm_cpu_memory,
)
from fsdpo_data.planning.plan import Plan, Rate
from fsdpo_data.planning.workload import Workload
from fsdpo_data.stages.pipeline import BuildOptions, limited_problems, sampler_options
from fsdpo_data.stages.score import ScoreOptions

SAMPLE_ROWS = 256  #: Texts whose tokens are counted; the mean stands for all texts.
#: Texts of the run that measures the rate, and the most tokens of each.
RATE_TEXTS = 4
RATE_TOKENS = 64
#: Sequences of a batch of the transformers sampler, and prompts that a scorer keeps, by device.
CPU_SEQUENCES = 32
GPU_SEQUENCES = 256
SCORER_PROMPTS = 32
_REPLICA_NOTE = "with `engine=ray`: `actors`, or the GPUs of this machine"
_VLLM_NOTE = "vLLM fills its share of the GPU (0.9) with keys and values"


@dataclass(frozen=True, slots=True)
class _PlannedModel:
    """The model of a plan."""

    size: ModelSize
    dtype: str  #: Data type of the weights.
    runs_on_vllm: bool  #: Whether vLLM runs the model on this machine.


@dataclass(frozen=True, slots=True)
class _SolutionTokens:
    """The tokens of the solutions to score, estimated from the first rows."""

    n_solutions: int  #: Number of solutions.
    n_prompts: int  #: Number of different prompts.
    rows: Sequence[Mapping[str, Any]]  #: The first rows.
    prompt_counts: Sequence[int]  #: Tokens of the prompt of each of these rows.
    solution_counts: Sequence[int]  #: Tokens of the solution of each of these rows.

    @property
    def prompt_tokens(self) -> float:
        """The mean number of tokens of a prompt."""
        return sum(self.prompt_counts) / max(1, len(self.rows))

    @property
    def solution_tokens(self) -> float:
        """The mean number of tokens of a solution."""
        return sum(self.solution_counts) / max(1, len(self.rows))


def plan_build(options: BuildOptions, tokens_per_second: float | None = None) -> Plan:
    """Plan a build without starting it. The reward model of a build is not part of the plan.

    Args:
        options: Options of the build.
        tokens_per_second: Generated tokens per second of one replica; None measures the rate with
            four short completions.

    Raises:
        InputError: if no model runs, or a problem file cannot be used.
        UnavailableError: if a model or a package is missing.

    Examples:
        plan = plan_build(BuildOptions(model="tiny", limit=100), tokens_per_second=5000)
        print(plan.describe())
    """
    if options.is_replay or not options.engine.engine_entry.needs_model:
        raise options.field_error(
            "engine", "no model runs in this build, so there is nothing to plan."
        )
    engine = sampler_options(options)
    name = options.model or DEFAULT_MODEL
    weights = resolve_model(name, engine, options.template)
    problems = _shard(options.shard).select(limited_problems(options).problems)
    sampling = options.sampling
    prompts = [weights.template.render(problem.question) for problem in problems[:SAMPLE_ROWS]]
    planned = _open_model(weights, engine, SAMPLERS)
    n_sequences = len(problems) * sampling.n
    cpu_memory = gpu_memory = None
    if planned is not None:
        longest = max(_token_counts(weights, prompts), default=0) + sampling.max_tokens
        cpu_memory, gpu_memory = _sampling_memory(planned, engine, n_sequences, longest)
    return Plan(
        replicas=_replicas(engine),
        replica_note=_REPLICA_NOTE,
        token_note=f"at most: {len(problems):,} problems × {sampling.n} samples × "
        f"{sampling.max_tokens:,} tokens",
        work=Workload(
            "generate",
            sequences=n_sequences,
            tokens=sampling.max_tokens,
            parameters=_billions_of_parameters(planned),
        ),
        cpu_memory=cpu_memory,
        gpu_memory=gpu_memory,
        gpu_note=_VLLM_NOTE if planned else "",
        rate=_given_rate(tokens_per_second) or _measure_build(options, name, prompts),
    )


def plan_score(options: ScoreOptions, tokens_per_second: float | None = None) -> Plan:
    """Plan the scoring of a dataset without starting it.

    Args:
        options: Options of the scoring.
        tokens_per_second: Scored tokens per second of one replica; None measures the rate with a
            few solutions.

    Raises:
        InputError: if the reward model is a judge, or the dataset cannot be used.
        UnavailableError: if a model or a package is missing.

    Examples:
        options = ScoreOptions(data="runs/demo", prm="runs/prm", out="runs/scored")
        print(plan_score(options, tokens_per_second=5000).describe())
    """
    weights = resolve_prm(str(options.prm or options.policy), options.engine)
    if isinstance(weights, PublishedPrm) and weights.prm_format.is_judge:
        raise options.field_error(
            "prm", "a judge writes critiques of unknown length, so its tokens cannot be planned."
        )
    solutions = _count_solution_tokens(options, weights)
    planned = _open_model(weights, options.engine, SCORERS)
    cpu_memory = gpu_memory = None
    if planned is not None:
        cpu_memory, gpu_memory = _scoring_memory(planned, options.engine, solutions)
    return Plan(
        replicas=_replicas(options.engine),
        replica_note=_REPLICA_NOTE,
        token_note=f"{solutions.n_solutions:,} solutions of {solutions.solution_tokens:,.0f} "
        f"tokens and their prompts, estimated from {len(solutions.rows)}",
        work=Workload(
            "score",
            sequences=solutions.n_solutions,
            prompt_tokens=round(solutions.prompt_tokens),
            tokens=round(solutions.solution_tokens),
            parameters=_billions_of_parameters(planned),
        ),
        cpu_memory=cpu_memory,
        gpu_memory=gpu_memory,
        gpu_note=_VLLM_NOTE if planned and options.engine.engine == "vllm" else "",
        rate=_given_rate(tokens_per_second) or _measure_score(options, weights, solutions),
    )


def _sampling_memory(
    planned: _PlannedModel, engine: SamplerOptions, n_sequences: int, longest: int
) -> tuple[MemoryEstimate, MemoryEstimate]:
    """Estimate the memory of sampling on a CPU and on a GPU.

    Args:
        planned: The model.
        engine: Options of the engine.
        n_sequences: Number of completions.
        longest: Tokens of the longest prompt and of the longest possible completion.
    """

    def estimate(max_rows: int, gpus: int) -> MemoryEstimate:
        rows = min(n_sequences, engine.batch_size or max_rows)
        return inference_memory(
            planned.size,
            dtype=planned.dtype,
            batch_tokens=rows * longest,
            cached_tokens=rows * longest,
            logit_rows=rows,
            shards=gpus,
        )

    gpu_memory = estimate(GPU_SEQUENCES, _gpus_per_replica(engine))
    if planned.runs_on_vllm:
        return _vllm_cpu_memory(planned), gpu_memory
    return estimate(CPU_SEQUENCES, 1), gpu_memory


def _scoring_memory(
    planned: _PlannedModel, engine: ScorerOptions, solutions: _SolutionTokens
) -> tuple[MemoryEstimate, MemoryEstimate]:
    """Estimate the memory of scoring on a CPU and on a GPU.

    Keys and values exist for the prompts, and for a batch of solutions with their prompts.
    """
    cached_prompts = min(solutions.n_prompts, SCORER_PROMPTS)
    solutions_of_prompts = cached_prompts * solutions.n_solutions / max(1, solutions.n_prompts)

    def estimate(batch_tokens: int) -> MemoryEstimate:
        solutions_of_batch = batch_tokens / max(1.0, solutions.solution_tokens)
        cached_solutions = min(solutions_of_prompts, solutions_of_batch)
        cached_tokens = cached_prompts * solutions.prompt_tokens + cached_solutions * (
            solutions.prompt_tokens + solutions.solution_tokens
        )
        return inference_memory(
            planned.size,
            dtype=planned.dtype,
            batch_tokens=batch_tokens,
            cached_tokens=round(cached_tokens),
        )

    gpu_memory = estimate(engine.batch_tokens)
    if planned.runs_on_vllm:
        return _vllm_cpu_memory(planned), gpu_memory
    return estimate(min(engine.batch_tokens, MAX_CPU_BATCH_TOKENS)), gpu_memory


def _vllm_cpu_memory(planned: _PlannedModel) -> MemoryEstimate:
    """Estimate the memory of the worker process of vLLM on a CPU."""
    return vllm_cpu_memory(planned.size, dtype=planned.dtype, cache_bytes=cpu_cache_bytes())


def _count_solution_tokens(options: ScoreOptions, weights: ResolvedWeights) -> _SolutionTokens:
    """Count the solutions of a dataset or shard, and the tokens of the first ones."""
    root = local_copy(options.data)
    files = _shard(options.shard).select(read_manifest(root).config_paths(root, "solutions"))
    solutions = scan_rows("solutions", list(files)).select("prompt", "completions")
    n_solutions, n_prompts = (
        solutions.select(pl.len(), pl.col("prompt").n_unique()).collect().row(0)
    )
    rows = solutions.head(SAMPLE_ROWS).collect().to_dicts()
    return _SolutionTokens(
        n_solutions=n_solutions,
        n_prompts=n_prompts,
        rows=rows,
        prompt_counts=_token_counts(weights, [row["prompt"] for row in rows]),
        solution_counts=_token_counts(weights, ["".join(row["completions"]) for row in rows]),
    )


#: Functions that plan a stage, by the class of its options.
STAGE_PLANS: Mapping[type, Callable[[Any, float | None], Plan]] = {ScoreOptions: plan_score}


def _shard(text: str | None) -> JobShard:
    """Return the shard of the options."""
    return JobShard.parse(text) if text else UNSHARDED


def _replicas(options: EngineOptions) -> int:
    """Return the number of replicas, without a connection to a cluster."""
    if not options.uses_ray:
        return int(options.engine_args.get("data_parallel_size", 1))
    return options.actors or max(1, int(torch.cuda.device_count() / options.gpus_per_actor))


def _gpus_per_replica(options: EngineOptions) -> int:
    """Return the number of GPUs that share the weights of a replica."""
    return int(options.engine_args.get("tensor_parallel_size", 1))


def _open_model(
    weights: ResolvedWeights, options: EngineOptions, registry: Registry[EntryT]
) -> _PlannedModel | None:
    """Return the sizes of a model; None if a server runs the model.

    Args:
        weights: The model.
        options: Options of the engine. A named engine need not be installed.
        registry: The engines that an automatic choice selects from.
    """
    entry = options.engine_entry
    if entry.is_remote:
        return None
    if entry.is_automatic:
        entry = choose_engine(registry, options.device)
    config = load_config(weights)
    is_reward_model = "ForTokenClass" in str(config.architectures)
    auto_class = "AutoModelForTokenClassification" if is_reward_model else "AutoModelForCausalLM"
    dtype: str = options.dtype
    if dtype == "auto":
        dtype = str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")
    size = model_size(config, auto_class)
    return _PlannedModel(size, dtype, runs_on_vllm="vllm" in entry.packages)


def _billions_of_parameters(planned: _PlannedModel | None) -> float:
    """Return the size of a model for a workload; 0 if a server runs the model."""
    return planned.size.parameters / 1e9 if planned else 0


def _token_counts(weights: ResolvedWeights, texts: Sequence[str]) -> list[int]:
    """Return the number of tokens of each text; a server's tokenizer is taken as four letters."""
    if not weights.path:
        return [len(text) // 4 for text in texts]
    tokenizer = read_tokenizer(weights.path, weights.commit)
    return [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]


def _given_rate(tokens_per_second: float | None) -> Rate | None:
    """Return a rate that the user states; None to measure."""
    if tokens_per_second is None:
        return None
    return Rate(tokens_per_second=tokens_per_second, source="as given")


def _in_process(options: EngineOptionsT) -> EngineOptionsT:
    """Return the options of one replica in this process."""
    if not options.uses_ray:
        return options
    return replace(options, engine="auto", actors=None, gpus_per_actor=1.0)


def _measure_build(options: BuildOptions, model: str, prompts: Sequence[str]) -> Rate:
    """Sample a few short completions, and return the rate."""
    if not prompts:
        raise InputError("there are no problems to plan.", field="problems")
    sampler: Any = load_sampler(model, _in_process(options.engine))
    spec = replace(options.sampling, n=1, max_tokens=min(RATE_TOKENS, options.sampling.max_tokens))
    try:
        started = time.perf_counter()
        completions = sampler.sample(list(prompts[:RATE_TEXTS]), spec)
        seconds = time.perf_counter() - started
    finally:
        close_engine(sampler)
    tokens = sum(completion.n_tokens for texts in completions for completion in texts)
    return Rate(
        tokens_per_second=max(1, tokens) / seconds, source=f"measured here on {tokens} tokens"
    )


def _measure_score(
    options: ScoreOptions, weights: ResolvedWeights, solutions: _SolutionTokens
) -> Rate:
    """Score a few solutions, and return the rate."""
    rows = solutions.rows[:RATE_TEXTS]
    if not rows:
        raise InputError("there are no solutions to plan.", field="data")
    inputs = [ScorerInput(row["prompt"], row["completions"]) for row in rows]
    scorer: Any = load_scorer(weights, _in_process(options.engine))
    try:
        started = time.perf_counter()
        scorer.score(inputs)
        seconds = time.perf_counter() - started
    finally:
        close_engine(scorer)
    tokens = sum(solutions.prompt_counts[: len(rows)]) + sum(solutions.solution_counts[: len(rows)])
    return Rate(tokens_per_second=tokens / seconds, source=f"measured here on {tokens} tokens")
