"""The models that training starts from: found, loaded, given adapters, written."""

from collections.abc import Callable
from typing import Any

from torch.nn.modules.dropout import _DropoutNd

from fsdpo_data.core.errors import InputError
from fsdpo_data.models import checkpoints
from fsdpo_data.models.resolve import resolve_weights
from fsdpo_train.config import TrainConfig

REWARD_HEAD_NAMES = ["classifier", "score"]  #: What architectures call that of a reward model.


def load_model(
    config: TrainConfig, auto_class: str, configure: Callable[[Any], None] | None = None
) -> tuple[Any, Any]:
    """Load ``config.model`` and its tokenizer to train; the tokenizer gets a padding token.

    ``configure`` changes the checkpoint's config before its weights are loaded.

    Raises:
        Unavailable: if there is no such model, or it cannot be loaded.
    """
    tokenizer, model = checkpoints.load_checkpoint(
        auto_class,
        resolve_weights(str(config.model)),
        dtype=config.weights_dtype,  # whatever the file holds
        expected="config.json, tokenizer files and safetensors weights",
        configure=configure,
        **(_nf4_options(config, new_head=configure is not None) if config.load_in_4bit else {}),
    )
    for each in model.modules():
        if hasattr(each, "support_avx512bf16_for_cpu"):
            # Or evaluation would repack weights for good: rounded, and nothing learns from them.
            each.support_avx512bf16_for_cpu = False
    check_tokenizer(tokenizer, model)
    return model, tokenizer


def _nf4_options(config: TrainConfig, new_head: bool) -> dict[str, Any]:
    """Return what ``from_pretrained`` is told to hold linear layers, save the head, in NF4."""
    from transformers import BitsAndBytesConfig

    quantized = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=config.dtype,
        llm_int8_skip_modules=REWARD_HEAD_NAMES
        if new_head
        else None,  # by default that of a vocabulary
    )
    return {"quantization_config": quantized}


def disable_dropout(model: Any) -> Any:
    """Switch dropout off, in every module that has it, and return the model."""
    for module in model.modules():
        for name in vars(module):
            own = name == "p" and isinstance(module, _DropoutNd)
            if own or ("drop" in name and isinstance(getattr(module, name), float)):
                setattr(module, name, 0.0)
    return model


def check_tokenizer(tokenizer: Any, model: Any) -> None:
    """Refuse a tokenizer that does not fit the model; give it a padding token if it has none.

    Raises:
        InputError: if it has no end-of-sequence token, or more tokens than the model embeds.
    """
    if tokenizer.eos_token_id is None:
        raise InputError(
            "the tokenizer has no end-of-sequence token; no answer could end. Set eos_token in "
            "tokenizer_config.json."
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    size = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > size:
        raise InputError(
            f"the tokenizer has {len(tokenizer)} tokens but the model embeds only {size}. "
            "Use the tokenizer the model was made with, or set vocab_size in config.json."
        )


def context_length(config: TrainConfig, model: Any) -> int:
    """Return how many tokens a row may have.

    Raises:
        InputError: if ``config.max_length`` is more than the model reads.
    """
    context = checkpoints.context_length(model.config)
    if config.max_length > context:
        raise InputError(
            f"the model reads {context} tokens.", field="max_length", value=config.max_length
        )
    return config.max_length or context


def add_lora_adapters(model: Any, rank: int, task: str) -> Any:
    """Put LoRA adapters on every linear layer of ``model``, if ``rank`` is over 0.

    A vocabulary head is left alone, a new one is trained whole; their scale is twice their rank.
    """
    if not rank:
        return model
    from peft import LoraConfig, get_peft_model

    adapters = LoraConfig(
        task_type=task,
        r=rank,
        lora_alpha=2 * rank,
        target_modules="all-linear",
        exclude_modules=REWARD_HEAD_NAMES if task == "TOKEN_CLS" else None,
    )
    found = get_peft_model(model, adapters)
    for each in found.parameters():
        if each.requires_grad:  # at 1e-5, updates to bfloat16 weights round away
            each.data = each.data.float()
    return found


def attach_to_full_precision(model: Any, config: TrainConfig) -> Any:
    """Return a model with the adapters of one in four bits, and the weights that it was made of."""
    from peft import get_peft_model

    base = model.get_base_model()
    told = {name: each for name, each in vars(base.config).items() if name != "quantization_config"}
    _, whole = checkpoints.load_checkpoint(
        type(base).__name__,
        resolve_weights(str(config.model)),
        dtype="float32",
        expected="the weights that it had at the start",
        configure=lambda fresh: vars(fresh).update(told),
    )
    found = get_peft_model(whole, model.peft_config["default"])
    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    found.load_state_dict(trained, strict=False)
    return found
