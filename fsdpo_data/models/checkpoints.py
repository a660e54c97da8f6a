"""Checkpoints loaded to run with transformers, whatever they are run for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from fsdpo_data.core.errors import FsdpoError, Unavailable
from fsdpo_data.models.resolve import Weights
from fsdpo_data.models.untrusted import load_error, tried


def load_checkpoint(
    auto_class: str,
    weights: Weights,
    *,
    dtype: str,
    expected: str,
    field: str = "model",
    configure: Callable[[Any], None] | None = None,
) -> tuple[Any, Any]:
    """Load a tokenizer and a model; weights come from safetensors only.

    ``auto_class`` is the ``AutoModelFor…`` to load it as, ``dtype`` one of torch's or ``auto``,
    the checkpoint's own. ``configure`` changes the config before the weights are loaded.
    ``expected`` and ``field`` say in the message what should have been there, and what names it.

    Raises:
        Unavailable: if it cannot be loaded.
    """
    import transformers

    try:
        tokenizer = tried(
            transformers.AutoTokenizer.from_pretrained(
                weights.path, revision=weights.commit, trust_remote_code=False
            )
        )
        config = load_config(weights)
        if configure is not None:
            configure(config)
        net = getattr(transformers, auto_class).from_pretrained(
            weights.path,
            revision=weights.commit,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
        )
    except FsdpoError:
        raise
    except Exception as error:  # a damaged file: tokenizers raises no narrower class
        raise _unloadable(weights, error, f"Expected {expected}.").of(field) from error
    return tokenizer, net


def load_config(weights: Weights) -> Any:
    """Load the config of a checkpoint.

    Raises:
        Unavailable: if it cannot be loaded.
    """
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(
            weights.path, revision=weights.commit, trust_remote_code=False
        )
    except Exception as error:  # a damaged file
        raise _unloadable(weights, error, "Expected a config.json of transformers.") from error


def context_length(config: Any) -> int:
    """Return how many tokens a model reads at most; models without positions read any number."""
    text = config.get_text_config()  # a model that also sees has several configs
    length: int = getattr(text, "max_position_embeddings", None) or sys.maxsize
    return length


def _unloadable(weights: Weights, error: Exception, expected: str) -> FsdpoError:
    return Unavailable(
        f"it cannot be loaded: {load_error(error)} {expected}",
        field="model",
        value=weights.path,
    )


def pick_device(device: str) -> str:
    """Return ``cuda`` or ``cpu``.

    Raises:
        Unavailable: if a GPU is asked for and torch sees none.
    """
    import torch

    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise Unavailable(
            "torch sees no GPU here. Use cpu (or auto), or check the driver with nvidia-smi and "
            "that this torch build has CUDA.",
            field="device",
            value=device,
        )
    return device if device != "auto" else "cuda" if has_gpu else "cpu"
