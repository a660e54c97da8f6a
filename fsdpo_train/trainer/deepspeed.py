"""DeepSpeed: what it is configured by, and the processes that it runs in."""

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
    """Return what ``TrainingArguments`` takes for ``TrainConfig.deepspeed``."""
    if name not in DEEPSPEED_PRESETS:
        return name
    told = read_toml(__file__)
    return {**told["every"], "zero_optimization": told[name]}


def init_deepspeed_processes(arguments: Any) -> None:
    """Let DeepSpeed know the other processes: zero3 spreads weights over them as it loads them."""
    atexit.register(_destroy_process_group)
    if arguments.deepspeed is None or "RANK" not in os.environ:
        return
    import deepspeed

    arguments.device  # noqa: B018, the property sets up torch's process group
    deepspeed.init_distributed(auto_mpi_discovery=False, verbose=False)


def _destroy_process_group() -> None:
    """End the process group: its threads, still running, now and then abort a process that ends."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def gathered_weights(model: Any) -> AbstractContextManager[Any]:
    """Hold the weights of a model whole, though ZeRO-3 has spread them over the processes."""
    spread = [each for each in model.parameters() if hasattr(each, "ds_id")]
    if not spread:
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters(spread)  # type: ignore[no-any-return]


@contextmanager
def without_zero3_partitioning(arguments: Any) -> Iterator[None]:
    """Load a model whole, though ZeRO-3 would spread it over the processes that train it."""
    unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if config := getattr(arguments, "hf_deepspeed_config", None):
            set_hf_deepspeed_config(config)
