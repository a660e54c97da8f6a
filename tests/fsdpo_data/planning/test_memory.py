"""The memory model: its numbers are those of the model's own tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from random_model import save_random_model
from transformers import AutoConfig, AutoModelForCausalLM

from fsdpo_data.planning.memory import (
    MicroBatches,
    ModelSize,
    inference_memory,
    model_size,
    training_memory,
)
from fsdpo_data.planning.workload import GPUS, Workload, estimate, estimate_hours, gpu_rate

TOKENS = 128


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture(scope="module")
def size(folder: Path) -> ModelSize:
    return model_size(AutoConfig.from_pretrained(folder))


def saved_bytes(model: torch.nn.Module) -> int:
    """Return the bytes that a forward pass over ``TOKENS`` tokens saves, without the weights."""
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    storages: dict[int, torch.Tensor] = {}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            storages[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        model.base_model(input_ids=torch.ones(1, TOKENS, dtype=torch.long), use_cache=False)
    return sum(tensor.untyped_storage().nbytes() for tensor in storages.values())


def test_sizes_are_those_of_the_loaded_model(folder: Path, size: ModelSize) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder).float().train()
    assert size.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert 4 * TOKENS * size.saved_values == pytest.approx(saved_bytes(model), rel=0.02)
    model.gradient_checkpointing_enable()
    assert 4 * TOKENS * size.checkpoint_values == pytest.approx(saved_bytes(model), rel=0.02)
    assert size.checkpoint_values < size.saved_values / 4
    config = model.config
    head_width = config.hidden_size // config.num_attention_heads
    cache = 2 * config.num_hidden_layers * config.num_key_value_heads * head_width
    assert size.kv_values == cache


def test_the_parts_of_a_training(size: ModelSize) -> None:
    batches = MicroBatches(tokens=100, head_tokens=0, copies_prompts=False)
    full = training_memory(size, batches, dtype="float32", optim="adamw_torch_fused").parts
    n = size.parameters
    assert (full["weights"], full["gradients"], full["optimizer"]) == (4 * n, 4 * n, 8 * n)
    assert full["activations"] == 400 * size.saved_values and not full["head"]
    sharded = training_memory(
        size, batches, dtype="float32", optim="adamw_torch", state_shards=4, weight_shards=4
    ).parts
    assert (sharded["weights"], sharded["optimizer"]) == (n, 2 * n)
    adapters = training_memory(
        size, batches, dtype="bfloat16", optim="adamw_bnb_8bit", lora_parameters=100, is_4bit=True
    ).parts
    assert (adapters["weights"], adapters["optimizer"]) == (n / 2 + 400, 200)
    assert adapters["activations"] == full["activations"] / 2


def test_inference_keeps_the_cache(size: ModelSize) -> None:
    parts = inference_memory(size, dtype="bfloat16", batch_tokens=0, cached_tokens=10).parts
    assert (parts["weights"], parts["cache"]) == (2 * size.parameters, 20 * size.kv_values)


def test_hours_follow_from_the_rate() -> None:
    generation = Workload("generate", sequences=100, tokens=36, parameters=7)
    assert estimate_hours(generation, tokens_per_second=0.5, replicas=2) == 1
    pairs = Workload("pairs", sequences=10, tokens=360, prompts=5, parameters=7, epochs=2)
    # Two epochs, and the forward pass of the reference.
    assert estimate_hours(pairs, tokens_per_second=1) == pytest.approx(2.25)
    gpu = GPUS["h100"]
    for work in (generation, pairs):
        hours = estimate_hours(work, gpu_rate(work, gpu))
        assert estimate(work, gpu).gpu_hours == pytest.approx(hours)
