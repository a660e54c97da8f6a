"""The columns of the training rows of each stage."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

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
    #: Columns with a text, by the column with its steps that they replace in files.
    text_columns: Mapping[str, str] = field(default_factory=dict)
    advice: str = ""  #: Next step if columns are missing; empty for none.

    def missing_columns(self, names: Collection[str]) -> list[str]:
        """Return the columns that are missing in rows with columns ``names``."""
        return [
            self.text_columns.get(name, name)
            for name in self.columns
            if name not in names and self.text_columns.get(name) not in names
        ]

    @property
    def file_columns(self) -> str:
        """The columns that a file needs, as text."""
        return ", ".join(self.text_columns.get(name, name) for name in self.columns)


_STEP_ADVICE = (
    "For plain texts, use a loss without steps, such as `loss=dpo`. To get steps with rewards, "
    "write rows of question, answer and responses, then run `fsdpo-data import ROWS --from outputs "
    "--out DATA`, `fsdpo-data score DATA --prm PRM --out SCORED` and `fsdpo-data pair SCORED --out "
    "PAIRS`."
)

SFT_ROWS = RowFormat("SFT", ("prompt", "completion"))
PRM_ROWS = RowFormat(
    "PRM training",
    ("prompt", "completions", "labels"),
    config="solutions",
    optional_columns=("problem_id", "sample_index", "outcome", "rollouts", "imported_labels"),
)


def pair_rows(loss: PreferenceLoss) -> RowFormat:
    """Return the format of preference pairs for a loss."""
    reward_columns = _REWARD_COLUMNS if loss.uses_rewards else ()
    texts = {"chosen_steps": "chosen", "rejected_steps": "rejected"}
    return RowFormat(
        f"the loss {loss.name}",
        ("prompt", "chosen_steps", "rejected_steps", *reward_columns),
        config="pairs",
        optional_columns=("chosen", "rejected"),
        text_columns={} if loss.needs_steps else texts,
        advice=_STEP_ADVICE if loss.needs_steps else "",
    )
