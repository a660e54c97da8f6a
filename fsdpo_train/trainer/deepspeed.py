"""DeepSpeed: its configurations, its process group, and its partitioned weights."""

import atexit
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import distributed
from transformers.integrations.deepspeed import set_hf_deepspeed_config, unset_hf_deepspeed_config

from fsdpo_data.core.toml_tables import read_toml
from fsdpo_train.config import DEEPSPEED_PRESETS


def deepspeed_config(name: str | None) -> dict[str, Any] | str | None:
    """Return the value of ``TrainingArguments.deepspeed``: a preset's options, or a file name."""
    if name not in DEEPSPEED_PRESETS:
        return name
    tables = read_toml(__file__)  # deepspeed.toml, next to this module
    return {**tables["every"], "zero_optimization": tables[name]}


def init_deepspeed_processes(arguments: Any) -> None:
    """Set up DeepSpeed's process group; call this before a model is loaded.

    ZeRO-3 partitions weights while it loads them. Every process group ends at the exit of the
    process, also without DeepSpeed.
    """
    atexit.register(_destroy_process_group)
    if arguments.deepspeed is None or "RANK" not in os.environ:
        return
    import deepspeed

    arguments.device  # noqa: B018, the property sets up torch's process group
    deepspeed.init_distributed(auto_mpi_discovery=False, verbose=False)


def _destroy_process_group() -> None:
    """End the process group, because its threads can abort the process at exit."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def gathered_weights(model: Any) -> AbstractContextManager[Any]:
    """Return a context in which all weights are complete, even if ZeRO-3 has partitioned them."""
    partitioned = [parameter for parameter in model.parameters() if hasattr(parameter, "ds_id")]
    if not partitioned:
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters(partitioned)  # type: ignore[no-any-return]


@contextmanager
def without_zero3_partitioning(arguments: Any) -> Iterator[None]:
    """Load models completely in this context, even if ZeRO-3 would partition them."""
    unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if config := getattr(arguments, "hf_deepspeed_config", None):
            set_hf_deepspeed_config(config)
