"""Checkpoints loaded to run with transformers, whatever they are run for."""

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import FsdpoError, InputError, UnavailableError
from fsdpo_data.core.lazy import torch, transformers
from fsdpo_data.models.resolve import ResolvedWeights
from fsdpo_data.models.untrusted import describe_load_error, read_tokenizer

#: Tokens that a CPU computes at a time: more are slower, leave its caches and are padded more.
MAX_CPU_BATCH_TOKENS = 1024


def load_checkpoint(
    auto_class: str,
    weights: ResolvedWeights,
    *,
    dtype: str,
    expected: str,
    field: str = "model",
    configure: Callable[[Any], None] | None = None,
    **load_arguments: Any,
) -> tuple[Any, Any]:
    """Load a tokenizer and a model; weights come from safetensors only.

    ``auto_class`` is the ``AutoModelFor…`` to load it as, ``dtype`` one of torch's or ``auto``,
    the checkpoint's own. ``configure`` changes the config before the weights are loaded.
    ``expected`` and ``field`` say in the message what should have been there, and what names it;
    ``how`` is what else ``from_pretrained`` is told.

    Raises:
        InputError: if weights are missing, and ``configure`` has not asked for new ones.
        Unavailable: if it cannot be loaded.
    """
    # oneDNN keeps what it compiles for products of halves, which is megabytes for every length of a
    # batch; those of a few batches are enough.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    try:
        tokenizer = read_tokenizer(weights.path, weights.commit)
        config = load_config(weights)
        if auto_class.endswith("CausalLM") and "ForTokenClass" in str(config.architectures):
            told = "it is a reward model; expected a language model."
            raise InputError(told, field=field, value=weights.path)
        if configure is not None:
            configure(config)
        with _mute_load_report() if configure or auto_class == "AutoModel" else nullcontext():
            net, told = getattr(transformers, auto_class).from_pretrained(
                weights.path,
                revision=weights.commit,
                config=config,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                **load_arguments,
            )
    except FsdpoError:
        raise
    except Exception as error:  # a damaged file: tokenizers raises no narrower class
        raise _unloadable(weights, error, f"Expected {expected}.").for_field(field) from error
    if configure is None and told["missing_keys"]:
        names = sorted(told["missing_keys"])
        raise InputError(
            f"the checkpoint has no weights for {len(names)} tensors of {type(net).__name__}, "
            f"{names[0]} among them. Expected {expected}.",
            field=field,
            value=weights.path,
        )
    return tokenizer, net


@contextmanager
def _mute_load_report() -> Iterator[None]:
    """Keep transformers from reporting the weights of a head: new, or read apart."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def load_config(weights: ResolvedWeights) -> Any:
    """Load the config of a checkpoint; Unavailable if it cannot be loaded."""
    try:
        return transformers.AutoConfig.from_pretrained(
            weights.path, revision=weights.commit, trust_remote_code=False
        )
    except Exception as error:  # a damaged file
        raise _unloadable(weights, error, "Expected a config.json of transformers.") from error


def read_tensors(weights: ResolvedWeights, prefix: str) -> dict[str, Any]:
    """Return the tensors of a checkpoint whose names begin with ``prefix``, by what comes after.

    Raises:
        Unavailable: if its safetensors cannot be read.
    """
    from safetensors import safe_open
    from transformers.utils import cached_file

    found: dict[str, Any] = {}
    try:
        index = cached_file(
            weights.path,
            "model.safetensors.index.json",
            revision=weights.commit,
            _raise_exceptions_for_missing_entries=False,
        )
        files = {"model.safetensors"}
        if index is not None:
            listed = json.loads(Path(index).read_bytes())["weight_map"]
            files = {file for name, file in listed.items() if name.startswith(prefix)}
        for file in sorted(files):
            path = cached_file(weights.path, file, revision=weights.commit)
            with safe_open(path, framework="pt") as tensors:
                names = [name for name in tensors.keys() if name.startswith(prefix)]  # noqa: SIM118
                found |= {name.removeprefix(prefix): tensors.get_tensor(name) for name in names}
    except Exception as error:  # a damaged file
        raise _unloadable(weights, error, "Expected weights in safetensors.") from error
    return found


def context_length(config: Any) -> int:
    """Return how many tokens a model reads at most; models without positions read any number."""
    text = config.get_text_config()  # a model that also sees has several configs
    length: int = getattr(text, "max_position_embeddings", None) or sys.maxsize
    return length


def _unloadable(weights: ResolvedWeights, error: Exception, expected: str) -> FsdpoError:
    return UnavailableError(
        f"it cannot be loaded: {describe_load_error(error)} {expected}",
        field="model",
        value=weights.path,
    )


def pick_device(device: str) -> str:
    """Return ``cuda`` or ``cpu``; Unavailable if a GPU is asked for and torch sees none."""
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise UnavailableError(
            "torch sees no GPU here. Use cpu (or auto), or check the driver with nvidia-smi and "
            "that this torch build has CUDA.",
            field="device",
            value=device,
        )
    return device if device != "auto" else "cuda" if has_gpu else "cpu"
