"""DeepSpeed: its configurations, its process group, and its partitioned weights."""

import atexit
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from torch import distributed
from transformers.integrations.deepspeed import set_hf_deepspeed_config, unset_hf_deepspeed_config

from fsdpo_data.core.errors import FsdpoError, InputError
from fsdpo_data.core.input_files import read_json
from fsdpo_data.core.memory_limit import is_memory_error
from fsdpo_data.core.toml_tables import read_module_table
from fsdpo_train.config import DEEPSPEED_PRESETS


def deepspeed_config(name: str | None) -> dict[str, Any] | None:
    """Return the options of a preset or of a DeepSpeed configuration file; None for no DeepSpeed.

    Raises:
        InputError: if the file is not a JSON object.
    """
    if name is None:
        return None
    if name in DEEPSPEED_PRESETS:
        tables = read_module_table(__file__)  # deepspeed.toml, next to this module
        return {**tables["every"], "zero_optimization": tables[name]}
    try:
        options = read_json(Path(name))
    except (OSError, InputError) as error:
        reason = first_line(error).rstrip(".")
        raise _deepspeed_error(name, f"the file cannot be read: {reason}") from None
    if not isinstance(options, dict):
        raise _deepspeed_error(name, f"the file contains a {type(options).__name__}")
    return options


@contextmanager
def deepspeed_errors(name: str | None) -> Iterator[None]:
    """Turn errors of DeepSpeed into an InputError about its configuration.

    DeepSpeed checks its configuration with assertions, pydantic and classes of its own. Without
    DeepSpeed, the block is unchanged.

    Args:
        name: The option ``deepspeed``: a preset, a file, or None.

    Raises:
        InputError: for any Exception in the block, except for errors of fsdpo and of memory.
    """
    try:
        yield
    except FsdpoError:
        raise
    except Exception as error:
        if name is None or is_memory_error(error):
            raise
        message = (
            f"DeepSpeed does not start: {type(error).__name__}, {first_line(error).rstrip('.')}"
        )
        raise _deepspeed_error(name, message) from error


def first_line(error: Exception) -> str:
    """Return the first line of an error that another library has written, at most 200 letters."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]


def _deepspeed_error(name: str, reason: str) -> InputError:
    presets = " or ".join(DEEPSPEED_PRESETS)
    return InputError(
        f"{reason}. Expected {presets}, or a file with a JSON object of DeepSpeed options that "
        "agree with the options of the training.",
        field="deepspeed",
        value=name,
    )


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
