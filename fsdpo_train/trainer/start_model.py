"""The model that a training starts from, if the user names none: the policy of the dataset."""

import logging
from typing import TypeVar

from fsdpo_cards.pinned_names import pinned_name

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import UNKNOWN
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.stage_records import SAMPLE_STAGE, SampleRecord
from fsdpo_data.models.resolve import resolve_weights
from fsdpo_train.config import TrainConfig
from fsdpo_train.trainer.row_source import TrainingData

log = logging.getLogger(__name__)

ConfigT = TypeVar("ConfigT", bound=TrainConfig)


def with_start_model(config: ConfigT, data: TrainingData) -> ConfigT:
    """Return the options with the policy of the datasets as start model, unless they name a model.

    Raises:
        InputError: if the options name no model, and the policy of a dataset is not known, cannot
            be found under its name, or is not the policy of another dataset.
    """
    if config.model is not None:
        return config
    policy: ModelRef | None = None
    for location, source in zip(config.data, data.sources, strict=True):
        source_policy = policy_of_dataset(source.manifest) if source.manifest else None
        if source_policy is None:
            raise _missing_model_error(f"{location} does not name the model of its solutions.")
        if policy not in (None, source_policy):
            raise _missing_model_error(
                f"{config.data_text}: the solutions come from several models, such as "
                f"{policy.name} and {source_policy.name}."
            )
        policy = source_policy
    assert policy is not None  # there is at least one source
    name = pinned_name({"name": policy.name, "revision": policy.revision})
    try:
        model_ref = resolve_weights(name).ref
    except InputError:
        raise _missing_model_error(
            f"{config.data_text} names the model {name}, which cannot be found here."
        ) from None
    if model_ref != policy:
        raise _missing_model_error(
            f"{config.data_text} names the model {name} with the revision {policy.revision}, but "
            f"this name now has the revision {model_ref.revision}."
        )
    log.info(f"training starts from {name}, the model of the solutions in {config.data_text}")
    return config.replace(model=name)


def policy_of_dataset(manifest: Manifest) -> ModelRef | None:
    """Return the policy that wrote the solutions of a dataset; None if it has only a title."""
    model = manifest.get(SAMPLE_STAGE, SampleRecord).options.model
    return None if model.revision == UNKNOWN else model


def _missing_model_error(reason: str) -> InputError:
    return InputError(
        f"{reason} Expected a short name, a directory, or org/name on the Hub: set `model=MODEL`."
    )
