"""The models that training starts from: found, loaded, given adapters, written."""

from collections.abc import Callable, Sequence
from typing import Any

from torch.nn.modules.dropout import _DropoutNd

from fsdpo_data.core.errors import InputError, Unavailable, install
from fsdpo_data.models import checkpoints
from fsdpo_data.models.resolve import resolve_weights
from fsdpo_train.config import TrainConfig


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
    )
    check_tokenizer(tokenizer, model)
    return model, tokenizer


def without_dropout(model: Any) -> Any:
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


def with_adapters(model: Any, rank: int, task: str, *, exclude: Sequence[str] = ()) -> Any:
    """Put LoRA adapters on every linear layer of ``model``, if ``rank`` is over 0.

    A vocabulary head is left alone, and so is ``exclude``; the adapters' scale is twice their rank.

    Raises:
        Unavailable: if peft is not installed.
    """
    if not rank:
        return model
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise Unavailable(
            f"adapters need peft ({error}). Install it: {install('lora')}.",
            field="lora",
            value=rank,
        ) from error
    adapters = LoraConfig(
        task_type=task,
        r=rank,
        lora_alpha=2 * rank,
        target_modules="all-linear",
        exclude_modules=list(exclude) or None,
    )
    found = get_peft_model(model, adapters)
    for each in found.parameters():
        if each.requires_grad:  # at 1e-5, updates to bfloat16 weights round away
            each.data = each.data.float()
    return found
