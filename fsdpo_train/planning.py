"""Plan a training: its tokens, memory and hours, from the rows and the config of the model."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from fsdpo_data.core.lazy import torch
from fsdpo_data.models.checkpoints import context_length, load_config
from fsdpo_data.models.resolve import ResolvedWeights, resolve_weights
from fsdpo_data.models.untrusted import read_tokenizer
from fsdpo_data.planning.memory import (
    MemoryEstimate,
    MicroBatches,
    ModelSize,
    model_size,
    training_memory,
)
from fsdpo_data.planning.plan import Plan, Rate
from fsdpo_data.planning.workload import WorkKind, Workload
from fsdpo_train.config import DpoConfig, PrmConfig, SftConfig, TrainConfig

#: Tokens of the passes that measure the rate.
RATE_TOKENS = 512


@dataclass(frozen=True, slots=True)
class _PlannedRows:
    """The rows of a training, tokenised and packed as the trainer does it."""

    rows: Sequence[Any]  #: The rows or packs.
    #: Tokens of each part of a batch that runs at once on a CPU.
    cpu_parts: Callable[[Sequence[Any]], list[int]]
    kind: WorkKind
    note: str  #: The numbers of rows, in words.
    auto_class: str = "AutoModelForCausalLM"
    has_head: bool = True  #: Whether the vocabulary head runs.


def plan_training(config: TrainConfig, tokens_per_second: float | None = None) -> Plan:
    """Plan a training without starting it; only a rate that is not given loads the weights.

    Args:
        config: Options of the training.
        tokens_per_second: Rate of one process; None measures the rate with two short passes.

    Raises:
        InputError: if the data or an option cannot be used.
        UnavailableError: if a model or a package is not available.

    Examples:
        plan = plan_training(DpoConfig(data="runs/pairs", model="tiny", out="runs/policy"))
        print(plan.describe())
    """
    config, weights, planned = _plan_rows(config)
    size = _model_size(config, weights, planned)
    tokens = sum(row.length for row in planned.rows)
    processes = _processes()
    epochs = config.epochs
    if config.max_steps:
        rows_per_step = config.rows_per_micro_batch * config.grad_accum * processes
        epochs = config.max_steps * rows_per_step / len(planned.rows)
    # The tokens of all rows are one number, because prompts are shared.
    work = Workload(
        planned.kind,
        sequences=1,
        tokens=tokens,
        parameters=size.parameters / 1e9,
        epochs=epochs,
    )
    if tokens_per_second is not None:
        rate = Rate(tokens_per_second=tokens_per_second, source="as given")
    else:
        rate = _measure_rate(config, planned)
    return Plan(
        replicas=processes,
        replica_note="the processes of torchrun",
        token_note=f"{planned.note}, {epochs:.3g} epochs",
        work=work,
        cpu_memory=_memory(config, size, planned, on_gpu=False, processes=processes),
        gpu_memory=_memory(config, size, planned, on_gpu=True, processes=processes),
        rate=rate,
    )


def _processes() -> int:
    """Return the number of processes that torchrun has started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _plan_rows(config: TrainConfig) -> tuple[TrainConfig, ResolvedWeights, _PlannedRows]:
    """Return the options with their start model, its weights, and the rows."""
    if isinstance(config, DpoConfig):
        return _plan_pairs(config)
    if isinstance(config, PrmConfig):
        return _plan_solutions(config)
    assert isinstance(config, SftConfig)
    return _plan_completions(config)


def _plan_pairs(config: DpoConfig) -> tuple[TrainConfig, ResolvedWeights, _PlannedRows]:
    """Read preference pairs. A micro-batch is never split."""
    from fsdpo_train.preference.data import tokenize_groups, training_rows
    from fsdpo_train.preference.pairs import group_by_prompt, open_pairs
    from fsdpo_train.trainer.batching import pack_rows
    from fsdpo_train.trainer.start_model import with_start_model

    source = open_pairs(config.data)
    config = with_start_model(config, source)
    weights, tokenizer, max_length = _open_model(config)
    groups, counts = tokenize_groups(
        group_by_prompt(source.rows(), config.preference_loss, config.gamma), tokenizer, max_length
    )
    rows = pack_rows(training_rows(groups, config.shuffle), config)
    planned = _PlannedRows(
        rows=rows,
        cpu_parts=lambda batch: [sum(row.length for row in batch)],
        kind="pairs" if config.preference_loss.uses_reference else "train",
        note=f"{counts['pairs']:,} pairs of {counts['solutions']:,} solutions",
    )
    return config, weights, planned


def _plan_solutions(config: PrmConfig) -> tuple[TrainConfig, ResolvedWeights, _PlannedRows]:
    """Read labelled solutions."""
    from fsdpo_train.prm.data import open_solutions, prepare_rows, read_labelled_rows
    from fsdpo_train.trainer.batching import pack_rows
    from fsdpo_train.trainer.start_model import with_start_model

    source = open_solutions(config.data)
    config = with_start_model(config, source)
    weights, tokenizer, max_length = _open_model(config)
    data = prepare_rows(read_labelled_rows(source, config), tokenizer, max_length, config)
    trains_policy = config.prm_loss.trains_policy
    planned = _PlannedRows(
        rows=pack_rows(data.train, config),
        cpu_parts=lambda batch: _split_rows(batch, config),
        kind="train",
        note=f"{len(data.train):,} solutions",
        auto_class="AutoModelForCausalLM" if trains_policy else "AutoModelForTokenClassification",
        has_head=trains_policy,
    )
    return config, weights, planned


def _plan_completions(config: SftConfig) -> tuple[TrainConfig, ResolvedWeights, _PlannedRows]:
    """Read prompts and completions."""
    from fsdpo_train.sft.data import COLUMNS, encode_rows
    from fsdpo_train.trainer.batching import pack_rows
    from fsdpo_train.trainer.row_source import open_data

    if config.model is None:  # `from_config` has the sizes of a model
        config = replace(config, model=str(config.from_config), from_config=None)
    data = open_data(config.data, COLUMNS)
    weights, tokenizer, max_length = _open_model(config)
    rows = encode_rows(data, tokenizer, max_length).rows
    if not rows:
        raise config.field_error("data", "no row is left to train on.")
    planned = _PlannedRows(
        rows=pack_rows(rows, config),
        cpu_parts=lambda batch: _split_rows(batch, config),
        kind="train",
        note=f"{len(rows):,} completions",
    )
    return config, weights, planned


def _open_model(config: TrainConfig) -> tuple[ResolvedWeights, Any, int]:
    """Return the start model, its tokenizer and the maximum number of tokens of a row."""
    weights = resolve_weights(str(config.model))
    tokenizer = read_tokenizer(weights.path, weights.commit)
    return weights, tokenizer, config.max_length or context_length(load_config(weights))


def _model_size(config: TrainConfig, weights: ResolvedWeights, planned: _PlannedRows) -> ModelSize:
    """Return the sizes of the model that the stage trains."""
    model_config = load_config(weights)
    if planned.auto_class == "AutoModelForTokenClassification":
        model_config.num_labels = 1
    return model_size(model_config, planned.auto_class)


def _split_rows(batch: Sequence[Any], config: TrainConfig) -> list[int]:
    """Return the tokens of the parts in which a CPU computes a batch.

    Neighbours with the same prompt share it inside a part.
    """
    from fsdpo_data.engines.cpu_bf16.weights import TOKENS_FACTOR
    from fsdpo_data.models.checkpoints import MAX_CPU_BATCH_TOKENS
    from fsdpo_train.trainer.batching import unpack_rows

    tokens_per_part = MAX_CPU_BATCH_TOKENS * (TOKENS_FACTOR if config.dtype == "bfloat16" else 1)
    parts: dict[int, list[Any]] = {}
    end = 0
    previous = None
    for row in unpack_rows(batch):
        end += _added_tokens(row, previous)
        parts.setdefault((end - 1) // tokens_per_part, []).append(row)
        previous = row
    return [
        _added_tokens(rows[0], None) + sum(_added_tokens(row, last) for last, row in pairwise(rows))
        for rows in parts.values()
    ]


def _added_tokens(row: Any, previous: Any) -> int:
    """Return the tokens that a row adds to a batch after another row."""
    n_tokens = len(row.input_ids)
    is_shared = previous is not None and row.group is not None and previous.group == row.group
    return n_tokens - row.n_prompt if is_shared else n_tokens


def _batches(config: TrainConfig, planned: _PlannedRows, processes: int) -> Iterator[list[Any]]:
    """Yield the micro-batches of the first epoch in the order of training."""
    from fsdpo_train.trainer.trainer import PromptGroupedSampler

    order = list(PromptGroupedSampler(planned.rows, config, processes))
    for start in range(0, len(order), config.rows_per_micro_batch):
        indices = order[start : start + config.rows_per_micro_batch]
        yield [planned.rows[index] for index in indices]


def _memory(
    config: TrainConfig, size: ModelSize, planned: _PlannedRows, *, on_gpu: bool, processes: int
) -> MemoryEstimate:
    """Estimate the peak memory of a process, from the largest micro-batch of the first epoch."""
    largest = 0
    for batch in _batches(config, planned, processes):
        parts = [sum(row.length for row in batch)] if on_gpu else planned.cpu_parts(batch)
        largest = max(largest, *parts)
    chunk = getattr(config, "head_chunk", None) or _head_chunk(size, on_gpu=on_gpu)
    sharding = str(config.deepspeed or "")
    return training_memory(
        size,
        MicroBatches(
            tokens=largest,
            head_tokens=min(chunk, largest) if planned.has_head else 0,
            copies_prompts=not on_gpu,
        ),
        dtype=config.dtype,
        optim=config.optim,
        lora_parameters=_lora_parameters(size, config),
        is_4bit=config.load_in_4bit,
        gradient_checkpointing=config.gradient_checkpointing,
        state_shards=processes if sharding else 1,
        weight_shards=processes if sharding == "zero3" else 1,
    )


def _head_chunk(size: ModelSize, *, on_gpu: bool) -> int:
    """Return the tokens whose logits a training computes at once, with this machine's memory."""
    from fsdpo_data.core.memory_limit import available_memory
    from fsdpo_data.engines.logprobs import MAX_TOKENS_GPU, largest_chunk

    if on_gpu:  # the free memory of the GPU is not known
        return MAX_TOKENS_GPU
    training_bytes = 12 * size.parameters  # a gradient and two moments in float32
    return largest_chunk(size.vocabulary, max(0, available_memory() - training_bytes))


def _lora_parameters(size: ModelSize, config: TrainConfig) -> int:
    """Return the number of parameters of the adapters: two thin matrices per linear layer."""
    # A square matrix of width w has w² weights, and adapters of rank r have 2 r w.
    body = size.parameters - size.vocabulary * size.width
    return round(2 * config.lora * body / min(size.width, size.mlp_width))


def _measure_rate(config: TrainConfig, planned: _PlannedRows) -> Rate:
    """Measure the tokens per second of forward and backward passes over one row of random ids."""
    from fsdpo_data.models.checkpoints import load_checkpoint, pick_device
    from fsdpo_train.prm.train import set_reward_head

    device = pick_device("auto")
    is_reward_model = planned.auto_class == "AutoModelForTokenClassification"
    _, model = load_checkpoint(
        planned.auto_class,
        resolve_weights(str(config.model)),
        dtype=config.dtype,
        expected="config.json, tokenizer files and safetensors weights",
        configure=set_reward_head if is_reward_model else None,
    )
    model = model.to(device).train()
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    length = min(RATE_TOKENS, max(row.length for row in planned.rows))
    ids = torch.ones(1, length, dtype=torch.long, device=device)
    seconds = 0.0
    for _ in range(2):  # the first pass warms up
        started = time.perf_counter()
        model(input_ids=ids, use_cache=False).logits.float().logsumexp(-1).mean().backward()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - started
    return Rate(
        tokens_per_second=length / seconds,
        source=f"measured here on one pass over {length} tokens",
    )
