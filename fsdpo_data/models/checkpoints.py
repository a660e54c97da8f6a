"""Loading of checkpoints with transformers: models, configs, tensors and devices."""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import FsdpoError, InputError, UnavailableError
from fsdpo_data.core.input_files import read_json
from fsdpo_data.core.lazy import torch, transformers
from fsdpo_data.core.memory_limit import reraise_memory_error
from fsdpo_data.models.resolve import ResolvedWeights
from fsdpo_data.models.untrusted import describe_load_error, read_tokenizer

log = logging.getLogger(__name__)

#: Maximum tokens per batch on a CPU. Larger batches exceed its caches and need more padding.
MAX_CPU_BATCH_TOKENS = 1024
_LAYER_NUMBER = re.compile(r"(?:^|\.)layers\.(\d{1,6})(?:\.|$)")
#: Tensors that training does not change, also in modules that the model does not have: tables of
#: rotary embeddings, which old checkpoints have in each layer, and scales of quantised caches.
_BUFFER = re.compile(r"\.rotary|_scale$|_amax$")


def load_checkpoint(
    auto_class: str,
    weights: ResolvedWeights,
    *,
    dtype: str,
    expected: str,
    field: str = "model",
    device: str = "auto",
    configure: Callable[[Any], None] | None = None,
    **load_arguments: Any,
) -> tuple[Any, Any]:
    """Load a tokenizer and a model; the weights come from safetensors only.

    Args:
        auto_class: Name of the ``AutoModelFor…`` class.
        weights: The checkpoint.
        dtype: Name of a torch dtype, or ``auto``; see :func:`resolve_dtype`.
        expected: The expected kind of checkpoint, for errors.
        field: The option that names the checkpoint, for errors.
        device: Device of the model: ``cuda``, ``cpu`` or ``auto``.
        configure: Changes the config before the weights are loaded.
        load_arguments: Further arguments of ``from_pretrained``.

    Returns:
        The tokenizer and the model.

    Raises:
        InputError: if weights are missing, except for those of a head that ``configure`` may add.
            Also if the checkpoint has weights of the decoder that the model does not read.
        UnavailableError: if loading fails.
    """
    # oneDNN caches compiled bfloat16 kernels, which take megabytes per batch length. A small cache
    # is enough for a few batches.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    try:
        tokenizer = read_tokenizer(weights.path, weights.commit)
        config = load_config(weights)
        _refuse_reward_model(auto_class, config, weights, field)
        if configure is not None:
            configure(config)
        is_head_separate = configure is not None or auto_class == "AutoModel"
        with hide_bars(), _mute_load_report() if is_head_separate else nullcontext():
            model, loading_info = getattr(transformers, auto_class).from_pretrained(
                weights.path,
                revision=weights.commit,
                config=config,
                dtype=resolve_dtype(dtype, config, pick_device(device)),
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                **load_arguments,
            )
    except FsdpoError:
        raise
    except Exception as error:  # a damaged file: tokenizers raises no narrower class
        reraise_memory_error(error)
        raise _loading_error(weights, error, f"Expected {expected}.").for_field(field) from error
    missing_names = sorted(loading_info["missing_keys"])
    if configure is not None:
        base_prefix = f"{model.base_model_prefix}."
        missing_names = [name for name in missing_names if name.startswith(base_prefix)]
    if missing_names:
        raise InputError(
            f"the checkpoint has no weights for {len(missing_names)} tensors of "
            f"{type(model).__name__}, including {missing_names[0]}. Expected {expected}.",
            field=field,
            value=weights.path,
        )
    unread_names = _find_unread_weights(model, loading_info["unexpected_keys"])
    if unread_names:
        raise InputError(
            f"the model of config.json does not read {len(unread_names)} tensors of the "
            f"checkpoint, including {unread_names[0]}. Expected a config.json with all layers of "
            "the checkpoint, and merged adapters.",
            field=field,
            value=weights.path,
        )
    return tokenizer, model


def _find_unread_weights(model: Any, unexpected_names: Iterable[str]) -> list[str]:
    """Return the names of weights of the decoder that transformers has ignored.

    Heads, vision towers and layers that predict further tokens may be left out. Buffers may be left
    out too: attention masks, tables of rotary embeddings, and scales of quantised caches.

    Args:
        model: The loaded model.
        unexpected_names: Names of the tensors in the checkpoint that the model does not have.
    """
    decoder = model.base_model
    children = dict(decoder.named_children())
    modules = dict(decoder.named_modules())
    parameters = dict(decoder.named_parameters())
    config = model.config.get_text_config()
    n_layers = getattr(config, "num_hidden_layers", 0)
    extra_layers = range(n_layers, n_layers + (getattr(config, "num_nextn_predict_layers", 0) or 0))
    unread_names = []
    for name in sorted(unexpected_names):
        path, _, last_part = name.removeprefix(f"{model.base_model_prefix}.").rpartition(".")
        layer = _LAYER_NUMBER.search(path)
        is_extra_layer = layer is not None and int(layer[1]) in extra_layers
        if path.partition(".")[0] not in children or is_extra_layer or path in parameters:
            continue
        module = modules.get(path)
        if module is None:
            if _BUFFER.search(name) is None:
                unread_names.append(name)
        elif last_part in ("weight", "bias") and [*module.parameters(recurse=False)]:
            unread_names.append(name)  # the config may switch off the bias of a linear layer
    return unread_names


def _refuse_reward_model(
    auto_class: str, config: Any, weights: ResolvedWeights, field: str
) -> None:
    """Raise an InputError if a language model is requested from the checkpoint of a PRM."""
    if auto_class.endswith("CausalLM") and "ForTokenClass" in str(config.architectures):
        message = "the checkpoint is a reward model; expected a language model."
        raise InputError(message, field=field, value=weights.path)


@contextmanager
def hide_bars() -> Iterator[None]:
    """Hide bars of transformers, such as "Loading weights"; the bars of downloads stay.

    A training loads several models, and nothing on these bars tells them apart.
    """
    from transformers.utils import logging as transformers_logging

    def make_hidden_bar(factory: Any, args: Any, options: Any) -> Any:
        """Return a bar that shows nothing."""
        return factory(*args, **{**options, "disable": True})

    set_hook = getattr(transformers_logging, "set_tqdm_hook", lambda hook: None)
    previous_hook = set_hook(make_hidden_bar)
    try:
        yield
    finally:
        set_hook(previous_hook)


@contextmanager
def _mute_load_report() -> Iterator[None]:
    """Hide reports of transformers about the weights of a head that is new or loaded later."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def load_config(weights: ResolvedWeights) -> Any:
    """Load the config of a checkpoint.

    Raises:
        UnavailableError: if loading fails.
    """
    try:
        return transformers.AutoConfig.from_pretrained(
            weights.path, revision=weights.commit, trust_remote_code=False
        )
    except Exception as error:  # a damaged file
        raise _loading_error(weights, error, "Expected a config.json of transformers.") from error


def check_quantized(model: Any, weights: ResolvedWeights) -> None:
    """Run a quantised model on one token, because weights of another type fail only then.

    Raises:
        UnavailableError: if the weights do not fit the quantisation in the config.
    """
    if getattr(model.config, "quantization_config", None) is None:
        return
    try:
        with torch.no_grad():
            model(torch.zeros((1, 1), dtype=torch.long, device=model.device))
    except Exception as error:  # quantisation libraries raise no narrower class
        reraise_memory_error(error)
        expected = "Expected weights that fit the quantization_config of its config.json."
        raise _loading_error(weights, error, expected) from error


def read_tensors(weights: ResolvedWeights, prefix: str) -> dict[str, Any]:
    """Return the tensors of a checkpoint whose names start with ``prefix``.

    Returns:
        The tensors by name, without the prefix.

    Raises:
        UnavailableError: if the safetensors files are unreadable.
    """
    from safetensors import safe_open
    from transformers.utils import cached_file

    tensors: dict[str, Any] = {}
    try:
        index = cached_file(
            weights.path,
            "model.safetensors.index.json",
            revision=weights.commit,
            _raise_exceptions_for_missing_entries=False,
        )
        files = {"model.safetensors"}
        if index is not None:
            file_by_tensor = read_json(Path(index))["weight_map"]
            files = {file for name, file in file_by_tensor.items() if name.startswith(prefix)}
        for file in sorted(files):
            path = cached_file(weights.path, file, revision=weights.commit)
            with safe_open(path, framework="pt") as stored:
                for name in stored.keys():  # noqa: SIM118
                    if name.startswith(prefix):
                        tensors[name.removeprefix(prefix)] = stored.get_tensor(name)
    except Exception as error:  # a damaged file
        reraise_memory_error(error)
        raise _loading_error(weights, error, "Expected weights in safetensors.") from error
    return tensors


def read_tensor_names(folder: Path) -> frozenset[str]:
    """Return the names of the tensors in a local checkpoint; empty if they cannot be read."""
    from safetensors import safe_open

    try:
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            return frozenset(read_json(index)["weight_map"])
        with safe_open(folder / "model.safetensors", framework="pt") as stored:
            return frozenset(stored.keys())
    except Exception:  # a damaged file; the scorer reads it again and names the error
        return frozenset()


def decoder_of(model: Any) -> Any:
    """Return the decoder of a causal language model, without the vocabulary head.

    Raises:
        InputError: if the model has no separate decoder.
    """
    # In text models that are parts of larger models (Llama 4), `base_model` is the model itself.
    decoder = model.base_model if model.base_model is not model else getattr(model, "model", None)
    if decoder is None:
        raise InputError(
            f"the architecture {type(model).__name__} has no decoder apart from its head. Choose "
            "another model."
        )
    return decoder


def context_length(config: Any) -> int:
    """Return the maximum number of tokens of a model; without position limit, ``sys.maxsize``."""
    text_config = config.get_text_config()  # vision models have several configs
    length: int = getattr(text_config, "max_position_embeddings", None) or sys.maxsize
    return length


def _loading_error(weights: ResolvedWeights, error: Exception, expected: str) -> FsdpoError:
    """Return the error for a checkpoint that transformers cannot load."""
    return UnavailableError(
        f"the checkpoint cannot be loaded: {describe_load_error(error)} {expected}",
        field="model",
        value=weights.path,
    )


def pick_device(device: str) -> str:
    """Return ``cuda`` or ``cpu`` for ``cuda``, ``cpu`` or ``auto``.

    Raises:
        UnavailableError: if ``device`` is ``cuda``, but torch has no GPU.
    """
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise UnavailableError(
            "torch sees no GPU here. Use cpu (or auto), or check the driver with nvidia-smi and "
            "that this torch build has CUDA.",
            field="device",
            value=device,
        )
    if device != "auto":
        return device
    return "cuda" if has_gpu else "cpu"


def resolve_dtype(dtype: str, config: Any, device: str) -> str:
    """Return the name of the torch dtype that a checkpoint is loaded in.

    ``auto`` becomes the dtype of the checkpoint, but float32 in place of bfloat16 on a CPU that
    does not compute in bfloat16. If the checkpoint states no dtype, ``auto`` stays.

    Args:
        dtype: Name of a torch dtype, or ``auto``.
        config: The config of the checkpoint.
        device: Device of the model: ``cuda`` or ``cpu``.
    """
    if dtype != "auto":
        return dtype
    stored_dtype = str(config.dtype or "auto").removeprefix("torch.")
    is_quantized = getattr(config, "quantization_config", None) is not None
    if stored_dtype != "bfloat16" or is_quantized or device != "cpu" or cpu_has_bfloat16():
        return stored_dtype
    log.warning(
        "this CPU has no instructions for bfloat16, so the model is loaded in float32. State "
        "`dtype` if machines of other kinds work on the same run"
    )
    return "float32"


def cpu_has_bfloat16() -> bool:
    """Return whether the CPU has instructions for bfloat16 (avx512_bf16 or amx_bf16).

    Other CPUs compute in float32 and convert.
    """
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
