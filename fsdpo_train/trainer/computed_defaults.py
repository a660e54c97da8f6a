"""Defaults that the start model and the machine decide.

The embedded model ``tiny`` needs other learning rates than published models. The TOML file next to
this module has its options for each stage. They also hold for models that were trained from it,
which are recognised by the sizes in ``config.json``.
"""

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from fsdpo_data.core.input_files import read_json
from fsdpo_data.core.toml_tables import read_module_table
from fsdpo_data.hub.client import HubRepo, find_file
from fsdpo_data.models.checkpoints import cpu_has_bfloat16
from fsdpo_data.models.resolve import ResolvedWeights, resolve_weights
from fsdpo_data.problems.embedded import CHECKPOINT
from fsdpo_train.config import TrainConfig
from fsdpo_train.losses.preference_losses import PreferenceSpec

log = logging.getLogger(__name__)

ConfigT = TypeVar("ConfigT", bound=TrainConfig)

#: The options of each stage for the embedded model.
TINY_OPTIONS: Mapping[str, Mapping[str, Any]] = read_module_table(__file__)
#: Default learning rate of adapters, as a multiple of that of full weights. An adapter is a product
#: of small matrices that starts at zero, so the same rate changes the weights much less.
LORA_FACTOR = 10
#: Keys of ``config.json`` that training does not change, and that tell models of other sizes apart.
_SIZE_KEYS = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
)


def with_computed_defaults(config: ConfigT) -> ConfigT:
    """Return the options with the defaults for their start model and for this machine.

    Options that the user stated stay.

    Raises:
        InputError: if the start model does not exist.
        UnavailableError: if the Hub cannot be reached.
    """
    defaults = _tiny_defaults(config)
    if defaults:
        subject = "tiny" if config.model == "tiny" else f"{config.model}, as large as tiny"
        values = ", ".join(f"`{name}={value}`" for name, value in defaults.items())
        log.info(f"{subject}: {values}")
    elif config.lora and "lr" not in config.model_fields_set:
        defaults = {"lr": float(f"{LORA_FACTOR * config.lr:g}")}  # 5e-6, not 4.9…e-6
        log.info(f"LoRA: `lr={defaults['lr']:g}`, {LORA_FACTOR} times the rate of full weights")
    config = config.replace(**defaults)
    return config.replace(dtype=_default_dtype(config)) if config.dtype == "auto" else config


def computed_names(config: TrainConfig) -> Collection[str]:
    """Return the names of the options whose default may depend on model or machine."""
    return {*TINY_OPTIONS[config.stage], "dtype"}


def _tiny_defaults(config: TrainConfig) -> dict[str, Any]:
    """Return the options of the embedded model that the user did not state; empty for others."""
    if config.model is None or not _is_tiny(resolve_weights(config.model)):
        return {}
    unread_names = set()
    if isinstance(config, PreferenceSpec):
        unread_names = {"beta", "gamma"} - set(config.preference_loss.options)
    return {
        name: value
        for name, value in TINY_OPTIONS[config.stage].items()
        if name not in config.model_fields_set | unread_names
    }


def _is_tiny(weights: ResolvedWeights) -> bool:
    """Return whether a model is the embedded one, or has its sizes."""
    tiny_config = read_json(CHECKPOINT / "config.json")
    sizes = [tiny_config[key] for key in _SIZE_KEYS]
    model_config = _read_config(weights)
    return [model_config.get(key) for key in _SIZE_KEYS] == sizes


def _read_config(weights: ResolvedWeights) -> dict[str, Any]:
    """Return the ``config.json`` of a model; an empty table if it cannot be read."""
    if weights.commit is None:
        file: Path | None = Path(weights.path) / "config.json"
    else:
        file = find_file(HubRepo(weights.path, "model", weights.commit), "config.json")
    try:
        model_config = read_json(file) if file is not None else {}
    except (OSError, ValueError):  # the loading of the model names the error
        return {}
    return model_config if isinstance(model_config, dict) else {}


def _default_dtype(config: TrainConfig) -> str:
    """Return ``bfloat16`` for a processor that computes in it, else ``float32``.

    On a CPU, only models with bfloat16 weights are trained in bfloat16.
    """
    if torch.cuda.is_available():
        has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        has_bfloat16 = cpu_has_bfloat16() and _has_bfloat16_weights(config)
    return "bfloat16" if has_bfloat16 else "float32"


def _has_bfloat16_weights(config: TrainConfig) -> bool:
    if config.model is None:
        return False
    model_config = _read_config(resolve_weights(config.model))
    return "bfloat16" in (model_config.get("dtype"), model_config.get("torch_dtype"))
