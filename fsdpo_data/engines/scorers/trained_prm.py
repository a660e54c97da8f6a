"""Reward models of ``fsdpo-train prm``: which steps they were trained on."""

from dataclasses import dataclass
from typing import Any

from fsdpo_data.models.resolve import ResolvedWeights

#: Field of ``config.json`` in a checkpoint, which is true for outcome reward models.
_CONFIG_FIELD = "last_step_only"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedPrm(ResolvedWeights):
    """The resolved weights of a reward model without a PRM format."""

    #: Whether only the last step of each solution was trained, as in an outcome reward model.
    last_step_only: bool = False


def record_trained_steps(model_config: Any, *, last_step_only: bool) -> None:
    """Record in the config of a model whether only last steps are trained."""
    if last_step_only:
        setattr(model_config, _CONFIG_FIELD, True)
    elif hasattr(model_config, _CONFIG_FIELD):  # the start model was an outcome reward model
        delattr(model_config, _CONFIG_FIELD)


def has_trained_last_steps_only(model_config: Any) -> bool:
    """Tell whether the config of a model records that only last steps were trained."""
    return getattr(model_config, _CONFIG_FIELD, False) is True
