"""The command line on a model card, which trains the same model again."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fsdpo_data.core.command_line import (
    CommandParameter,
    command_parameters,
    given_values,
    off_flag,
)
from fsdpo_data.core.options import item_type
from fsdpo_data.core.plugins import plugin_arguments
from fsdpo_train.config import TrainConfig
from fsdpo_train.trainer.computed_defaults import computed_names

#: Options whose value may be a local path.
_PATH_OPTIONS = ("from_config", "deepspeed", "template")


def train_command(config: TrainConfig, model: str, data: Sequence[str]) -> str:
    """Return the command line that trains the same model, without local folders.

    It contains only options that determine the weights and differ from their default.

    Args:
        config: The options of the run.
        model: Name of the initial model; empty for random weights.
        data: Names of the training data.
    """
    out = Path("runs", config.stage)
    pinned_config = config.model_copy(
        update={"data": tuple(data), "model": model or None, "out": out}
    )
    parameters = command_parameters(type(config))
    values = given_values(pinned_config, always=computed_names(config))
    words = ["fsdpo-train"]
    for plugin in plugin_arguments():
        words += ["--plugin", Path(plugin).name if plugin.endswith(".py") else plugin]
    words.append(config.stage)
    for name in sorted(values, key=lambda name: not parameters[name].option.positional):
        if parameters[name].option.in_digest:
            words += _parameter_words(parameters[name], values[name])
    local_paths = {str(getattr(config, name, None)) for name in _PATH_OPTIONS}
    words = [Path(word).name if word in local_paths else word for word in words]
    return shlex.join([*words, "--out", str(out)])


def _parameter_words(parameter: CommandParameter, value: Any) -> list[str]:
    """Return the words that set one parameter."""
    if value is None:
        return []
    if isinstance(value, bool):
        return [parameter.flag if value else off_flag(parameter.flag)]
    texts = [str(item) for item in (value if item_type(parameter.info.annotation) else [value])]
    if parameter.option.positional:
        return texts
    return [word for text in texts for word in (parameter.flag, text)]
