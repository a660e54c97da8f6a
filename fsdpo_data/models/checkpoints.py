"""Checkpoints loaded to run with transformers, whatever they are run for."""

from __future__ import annotations

from typing import Any

from fsdpo_data.core.errors import Unavailable


def load_checkpoint(
    auto_class: str, path: str, revision: str | None, *, dtype: str, option: str, expected: str
) -> tuple[Any, Any]:
    """Load a tokenizer and a model; weights come from safetensors only.

    Args:
        auto_class: The ``AutoModelFor…`` to load it as.
        path: Local directory or Hub repository.
        revision: Commit for a Hub repository.
        dtype: ``auto`` (the checkpoint's own), ``float32``, ``bfloat16`` or ``float16``.
        option: The command-line option that named the checkpoint, for the message.
        expected: What should have been there, for the message.

    Raises:
        Unavailable: if it cannot be loaded.
    """
    import transformers

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, revision=revision)
        net = getattr(transformers, auto_class).from_pretrained(
            path, revision=revision, dtype=dtype, use_safetensors=True
        )
    except (OSError, ValueError) as error:
        raise Unavailable(
            f"{option} {path} cannot be loaded: {str(error).splitlines()[0]} Expected {expected}."
        ) from error
    return tokenizer, net


def pick_device(device: str) -> str:
    """Return ``cuda`` or ``cpu``.

    Raises:
        Unavailable: if a GPU is asked for and torch sees none.
    """
    import torch

    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise Unavailable(
            "--device cuda: torch sees no GPU here. Use --device cpu (or auto), or check the "
            "driver with nvidia-smi and that this torch build has CUDA."
        )
    return device if device != "auto" else "cuda" if has_gpu else "cpu"
