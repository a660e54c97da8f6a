"""The columns of the training rows of each stage."""

from collections.abc import Sequence
from dataclasses import dataclass

from fsdpo_train.losses.preference_losses import PreferenceLoss

_REWARD_COLUMNS = ("chosen_rewards", "rejected_rewards")


@dataclass(frozen=True, slots=True)
class RowFormat:
    """The columns of training rows."""

    purpose: str  #: What needs the columns, for error messages.
    columns: Sequence[str]  #: The columns that rows need.
    #: The config of a sealed dataset that contains such rows; empty if no config does.
    config: str = ""
    optional_columns: Sequence[str] = ()  #: Further columns to read from a sealed dataset.


SFT_ROWS = RowFormat("SFT", ("prompt", "completion"))
PRM_ROWS = RowFormat(
    "PRM training",
    ("prompt", "completions", "labels"),
    config="solutions",
    optional_columns=("problem_id", "sample_index", "outcome", "rollouts", "step_labels"),
)


def pair_rows(loss: PreferenceLoss) -> RowFormat:
    """Return the format of preference pairs for a loss."""
    reward_columns = _REWARD_COLUMNS if loss.uses_rewards else ()
    return RowFormat(
        f"the loss {loss.name}",
        ("prompt", "chosen_steps", "rejected_steps", *reward_columns),
        config="pairs",
        optional_columns=("chosen", "rejected"),
    )
