"""The models of a training run: loading, checks, LoRA adapters and 4-bit weights."""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import Embedding
from torch.nn.modules.dropout import _DropoutNd

from fsdpo_data.core.errors import InputError
from fsdpo_data.models import checkpoints
from fsdpo_data.models.resolve import resolve_weights
from fsdpo_train.config import TrainConfig

log = logging.getLogger(__name__)

#: Names that transformers gives the head of a reward model, depending on the architecture.
REWARD_HEAD_NAMES = ["classifier", "score"]
_MAX_REASON_WORDS = 30  #: Words of an error of transformers in a message.
#: Settings of a generation that have an effect only if it samples.
_SAMPLING_SETTINGS = (
    "temperature",
    "top_k",
    "top_p",
    "top_h",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
)
#: Names that peft gives the original of a module that it adapts or trains.
_PEFT_ORIGINALS = {"base_layer", "original_module"}


def load_model(
    config: TrainConfig, auto_class: str, configure: Callable[[Any], None] | None = None
) -> tuple[Any, Any]:
    """Load ``config.model`` for training, and its tokenizer, which gets a padding token.

    Args:
        config: The options of the run.
        auto_class: Name of the ``AutoModelFor…`` class.
        configure: Changes the config before the weights are loaded. Only reward models use it, to
            add a new head.

    Returns:
        The model and its tokenizer.

    Raises:
        UnavailableError: if the model does not exist or cannot be loaded.
        InputError: if the model and its tokenizer do not fit each other.
    """
    load_options: dict[str, Any] = {}
    if config.load_in_4bit:
        load_options = _nf4_options(config, has_new_head=configure is not None)
    tokenizer, model = checkpoints.load_checkpoint(
        auto_class,
        resolve_weights(str(config.model)),
        dtype=config.weights_dtype,  # independent of the precision in the file
        expected="config.json, tokenizer files and safetensors weights",
        configure=configure,
        **load_options,
    )
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            # On a CPU, bitsandbytes would repack the 4-bit weights at the first evaluation. They
            # would be rounded, and could not be trained again.
            module.support_avx512bf16_for_cpu = False
    restore_rotary_tables(model)
    check_tokenizer(tokenizer, model)
    check_generation_config(model)
    return model, tokenizer


def restore_rotary_tables(model: Any) -> None:
    """Compute the rotary tables of a model again if they are not in float32.

    ZeRO-3 creates every tensor of a model in the precision of its configuration. With tables in
    bfloat16, distant tokens would have other positions in training than in inference.
    """
    for module in model.modules():
        rounded_tables = {
            name: table.float()
            for name, table in module.named_buffers(recurse=False)
            if "inv_freq" in name and table.dtype != torch.float32
        }
        if rounded_tables:
            module._buffers.update(rounded_tables)
            model._init_weights(module)


def check_generation_config(model: Any) -> None:
    """Remove settings of sampling from a model that does not sample: it could not be saved.

    They have no effect.

    Raises:
        InputError: if transformers would not save other settings either.
    """
    config = getattr(model, "generation_config", None)
    if config is None:
        return
    if not config.do_sample:
        for name in _SAMPLING_SETTINGS:
            setattr(config, name, None)
    try:
        config.validate(strict=True)
    except ValueError as error:
        reason = " ".join(str(error).split()[:_MAX_REASON_WORDS])
        raise InputError(
            f"the trained model could not be saved with the generation_config.json of its start "
            f"model. Correct this file. transformers says: {reason} …"
        ) from None


def cast_parameters(model: Any, dtype: torch.dtype) -> None:
    """Convert the parameters of a model, as DeepSpeed does; the rotary tables stay in float32."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def _nf4_options(config: TrainConfig, *, has_new_head: bool) -> dict[str, Any]:
    """Return options of ``from_pretrained`` that load all linear layers except the head in NF4."""
    from transformers import BitsAndBytesConfig

    quantization = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=config.dtype,
        # With None, transformers skips the vocabulary head.
        llm_int8_skip_modules=REWARD_HEAD_NAMES if has_new_head else None,
    )
    return {"quantization_config": quantization}


def disable_dropout(model: Any) -> Any:
    """Switch dropout off in all modules, and return the model."""
    for module in model.modules():
        for name in vars(module):
            is_dropout_module = name == "p" and isinstance(module, _DropoutNd)
            is_dropout_rate = "drop" in name and isinstance(getattr(module, name), float)
            if is_dropout_module or is_dropout_rate:
                setattr(module, name, 0.0)
    return model


def check_tokenizer(tokenizer: Any, model: Any) -> None:
    """Check that a tokenizer fits the model, and add a padding token if it is missing.

    Raises:
        InputError: if the tokenizer has no end-of-sequence token, or more tokens than the model
            has embeddings.
    """
    if tokenizer.eos_token_id is None:
        raise InputError(
            "the tokenizer has no end-of-sequence token, so no answer could end. Set eos_token in "
            "tokenizer_config.json."
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    n_embeddings = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > n_embeddings:
        raise InputError(
            f"the tokenizer has {len(tokenizer)} tokens but the model embeds only {n_embeddings}. "
            "Use the tokenizer of the model, or set vocab_size in config.json."
        )


def context_length(config: TrainConfig, model: Any) -> int:
    """Return the maximum number of tokens of a row.

    Raises:
        InputError: if ``config.max_length`` exceeds the context length of the model.
    """
    model_length = checkpoints.context_length(model.config)
    if config.max_length > model_length:
        raise InputError(
            f"the model reads {model_length} tokens. Set a lower value, or 0 for all of them.",
            field="max_length",
            value=config.max_length,
        )
    length = config.max_length or model_length
    _warn_about_longrope(model.config, length)
    return length


def _warn_about_longrope(model_config: Any, length: int) -> None:
    """Warn if rows of up to ``length`` tokens affect each other in a batch."""
    rope = getattr(model_config, "rope_parameters", None) or {}
    short_length = rope.get("original_max_position_embeddings", length)
    if rope.get("rope_type") == "longrope" and length > short_length:
        log.warning(
            "the rotary tables of the model depend on the longest row of a batch. A row of up to "
            f"{short_length} tokens has other probabilities and rewards in a batch with longer "
            f"rows. `max_length={short_length}` leaves the longer ones out."
        )


def add_lora_adapters(model: Any, rank: int, task: str) -> Any:
    """Add LoRA adapters to all linear layers of ``model``, and return the result.

    The scale of the adapters is 2 (``lora_alpha`` is twice the rank). A vocabulary head gets no
    adapter, and a new reward head is trained directly. A warning names other matrices without an
    adapter, such as the experts of some mixture-of-experts models.

    Args:
        model: The model.
        rank: Rank of the adapters. With 0, the model is returned unchanged.
        task: Task type of peft: ``CAUSAL_LM`` or ``TOKEN_CLS``.
    """
    if not rank:
        return model
    from peft import LoraConfig, get_peft_model

    lora_config = LoraConfig(
        task_type=task,
        r=rank,
        lora_alpha=2 * rank,
        target_modules="all-linear",
        exclude_modules=REWARD_HEAD_NAMES if task == "TOKEN_CLS" else None,
    )
    adapted = get_peft_model(model, lora_config)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            # In bfloat16, updates with a learning rate of 1e-5 round to zero.
            parameter.data = parameter.data.float()
    _warn_about_frozen_matrices(adapted.get_base_model())
    return adapted


def _warn_about_frozen_matrices(model: Any) -> None:
    """Warn if a model has matrices that LoRA neither adapts nor trains, except for embeddings."""
    head = model.get_output_embeddings()
    frozen_sizes = {
        f"{module_name}.{name}": parameter.numel()
        for module_name, module in model.named_modules()
        if module is not head and not isinstance(module, Embedding)
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.ndim > 1
        and not parameter.requires_grad
        and not _PEFT_ORIGINALS & {*module_name.split(".")}
    }
    if frozen_sizes:
        log.warning(
            f"LoRA has no adapters for {sum(frozen_sizes.values()):,} weights, such as "
            f"{max(frozen_sizes, key=frozen_sizes.__getitem__)}, so they are not trained. Without "
            "`lora`, all weights are trained."
        )


def attach_to_full_precision(model: Any, config: TrainConfig) -> Any:
    """Return the original weights of a rounded model in float32, with its trained adapters."""
    from peft import get_peft_model

    base = model.get_base_model()
    model_settings = {
        name: value for name, value in vars(base.config).items() if name != "quantization_config"
    }
    _, full_precision = checkpoints.load_checkpoint(
        type(base).__name__,
        resolve_weights(str(config.model)),
        dtype="float32",
        expected="the weights that the model had at the start",
        configure=lambda model_config: vars(model_config).update(model_settings),
    )
    adapted = get_peft_model(full_precision, model.peft_config["default"])
    trained = {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }
    adapted.load_state_dict(trained, strict=False)
    return adapted
