"""Memory of a process that runs or trains a model, from the config of the model.

No weights are read or allocated. The activations are counted on tensors without memory, so they
follow the architecture.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fsdpo_data.core.lazy import torch, transformers

#: Python with torch and transformers in a training process on a CPU, measured after the first step
#: of a model with 40,000 parameters.
PROGRAM_BYTES = 480 * 10**6
#: The same for a process that samples or scores, which reads and writes datasets too, with a
#: tokenizer of 49,152 tokens.
INFERENCE_PROGRAM_BYTES = 700 * 10**6
#: The same for a worker of vLLM, with the activations of its batches, measured with a model of 135M
#: parameters.
VLLM_PROGRAM_BYTES = 1_150 * 10**6
#: Bytes of the optimizer's state per trained parameter, by a part of its name. AdamW has two
#: float32 moments, and is the default.
OPTIMIZER_BYTES = {"8bit": 2, "adafactor": 0, "sgd": 0, "lion": 4, "adagrad": 4}
_ADAMW_BYTES = 8
_PROBE_TOKENS = 64  #: Tokens of the shorter forward pass that counts activations.


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Sizes of a model that determine its memory."""

    parameters: int  #: Number of parameters; tied weights count once.
    vocabulary: int  #: Number of embeddings.
    width: int  #: Size of the hidden states.
    mlp_width: int  #: Size of the hidden layer of the feed-forward networks.
    kv_values: int  #: Keys and values of a token, over all layers.
    head_kv_values: int  #: The same, with a copy for each attention head.
    #: Values that the forward pass saves for the backward pass, per token, with and without
    #: gradient checkpointing.
    saved_values: float
    checkpoint_values: float


def model_size(config: Any, auto_class: str = "AutoModelForCausalLM") -> ModelSize:
    """Return the sizes of a model.

    Args:
        config: The config of transformers.
        auto_class: Name of the ``AutoModelFor…`` class.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    text_config = config.get_text_config()
    with FakeTensorMode():
        model = getattr(transformers, auto_class).from_config(config, dtype=torch.float32)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        saved_values = _count_saved_values(model)
        model.gradient_checkpointing_enable()
        checkpoint_values = _count_saved_values(model)
    heads = text_config.num_attention_heads
    head_width = getattr(text_config, "head_dim", None) or text_config.hidden_size // heads
    kv_heads = getattr(text_config, "num_key_value_heads", None) or heads
    return ModelSize(
        parameters=parameters,
        vocabulary=text_config.vocab_size,
        width=text_config.hidden_size,
        mlp_width=getattr(text_config, "intermediate_size", None) or 4 * text_config.hidden_size,
        kv_values=2 * text_config.num_hidden_layers * kv_heads * head_width,
        head_kv_values=2 * text_config.num_hidden_layers * heads * head_width,
        saved_values=saved_values,
        checkpoint_values=checkpoint_values,
    )


def _count_saved_values(model: Any) -> float:
    """Return the float32 values per token that a forward pass saves, without the parameters.

    Without memory, transformers makes a mask of tokens × tokens that a real pass does not need. Two
    lengths separate the part that grows with the square of the tokens.
    """
    short_bytes, long_bytes = (
        _count_saved_bytes(model, n_tokens) for n_tokens in (_PROBE_TOKENS, 2 * _PROBE_TOKENS)
    )
    return (4 * short_bytes - long_bytes) / (2 * _PROBE_TOKENS) / 4


def _count_saved_bytes(model: Any, n_tokens: int) -> int:
    """Return the bytes that a forward pass saves, without the parameters."""
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    saved_tensors: dict[int, Any] = {}  # keeps the tensors, so that no storage is used twice

    def save(tensor: Any) -> Any:
        """Remember a saved tensor."""
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            saved_tensors[storage._cdata] = tensor
        return tensor

    ids = torch.ones(1, n_tokens, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        model.train().base_model(input_ids=ids, use_cache=False)
    return sum(int(tensor.untyped_storage().nbytes()) for tensor in saved_tensors.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """The peak memory of one process, in bytes by part."""

    parts: Mapping[str, float]

    @property
    def total(self) -> float:
        """All bytes."""
        return sum(self.parts.values())

    def describe(self) -> str:
        """Return the total and the parts in GB."""
        parts = ", ".join(
            f"{name} {size / 1e9:.2f}" for name, size in self.parts.items() if size >= 5e6
        )
        return f"{self.total / 1e9:.2f} GB: {parts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatches:
    """The micro-batches of a training, for its memory."""

    tokens: int  #: Tokens of the largest forward pass.
    head_tokens: int  #: Tokens that the vocabulary head processes at a time; 0 without a head.
    #: Whether attention copies the keys and values of a shared prompt, segment by segment.
    copies_prompts: bool


def training_memory(
    size: ModelSize,
    batches: MicroBatches,
    *,
    dtype: str,
    optim: str,
    lora_parameters: int = 0,
    is_4bit: bool = False,
    gradient_checkpointing: bool = False,
    state_shards: int = 1,
    weight_shards: int = 1,
) -> MemoryEstimate:
    """Estimate the peak memory of a process that trains a model.

    Args:
        size: The model.
        batches: The micro-batches.
        dtype: Precision of the computation: ``float32`` or ``bfloat16``.
        optim: Name of the optimizer in transformers.
        lora_parameters: Parameters of the adapters; 0 trains all weights.
        is_4bit: Whether the frozen weights under the adapters have four bits.
        gradient_checkpointing: Whether the backward pass recomputes activations.
        state_shards: Processes that share gradients and optimizer state (ZeRO-2 and ZeRO-3).
        weight_shards: Processes that share the weights (ZeRO-3).
    """
    value_bytes = 2 if dtype == "bfloat16" else 4
    trained = lora_parameters or size.parameters
    if lora_parameters:
        weights = size.parameters * (0.5 if is_4bit else value_bytes) + 4 * lora_parameters
    else:  # float32 weights, and bfloat16 copies that compute
        weights = size.parameters * (4 + (2 if dtype == "bfloat16" else 0))
    saved_values = size.checkpoint_values if gradient_checkpointing else size.saved_values
    activations = batches.tokens * saved_values * value_bytes
    if gradient_checkpointing:  # the activations of one layer; layers are alike
        activations += batches.tokens * 8 * (size.width + size.mlp_width) * value_bytes
    head = batches.head_tokens * size.vocabulary * value_bytes
    if batches.head_tokens and not lora_parameters:
        head += size.vocabulary * size.width * 4  # the gradient of the head's weight
    if batches.copies_prompts and not gradient_checkpointing:
        activations += batches.tokens * size.head_kv_values * value_bytes
    return MemoryEstimate(
        parts={
            "program": PROGRAM_BYTES,
            "weights": weights / weight_shards,
            "gradients": 4 * trained / state_shards,
            "optimizer": trained * optimizer_bytes(optim) / state_shards,
            "activations": activations,
            "head": head,
        }
    )


def optimizer_bytes(optim: str) -> int:
    """Return the bytes of the optimizer's state per trained parameter.

    Examples:
        >>> optimizer_bytes("adamw_torch_fused"), optimizer_bytes("adamw_bnb_8bit")
        (8, 2)
    """
    return next((size for part, size in OPTIMIZER_BYTES.items() if part in optim), _ADAMW_BYTES)


def inference_memory(
    size: ModelSize,
    *,
    dtype: str,
    batch_tokens: int,
    cached_tokens: int,
    logit_rows: int = 0,
    shards: int = 1,
) -> MemoryEstimate:
    """Estimate the peak memory of a process that samples or scores with transformers.

    Args:
        size: The model.
        dtype: Precision of weights and computation.
        batch_tokens: Tokens of the largest forward pass.
        cached_tokens: Tokens whose keys and values are kept.
        logit_rows: Sequences that get the logits of a next token.
        shards: GPUs that share the weights and the cache (tensor parallelism).
    """
    value_bytes = 4 if dtype == "float32" else 2
    layer_values = 2 * size.mlp_width + 6 * size.width
    return MemoryEstimate(
        parts={
            "program": INFERENCE_PROGRAM_BYTES,
            "weights": size.parameters * value_bytes / shards,
            "cache": cached_tokens * size.kv_values * value_bytes / shards,
            "activations": batch_tokens * layer_values * value_bytes,
            "head": logit_rows * size.vocabulary * 4 * 4,  # float32 copies that are sorted
        }
    )


def vllm_cpu_memory(size: ModelSize, *, dtype: str, cache_bytes: int) -> MemoryEstimate:
    """Estimate the peak memory of a worker of vLLM on a CPU, which fills its cache.

    Args:
        size: The model.
        dtype: Precision of the weights.
        cache_bytes: Bytes of the keys and values.
    """
    return MemoryEstimate(
        parts={
            "program": VLLM_PROGRAM_BYTES,
            "weights": size.parameters * (4 if dtype == "float32" else 2),
            "cache": cache_bytes,
        }
    )
