"""A preference loss: the hinge of SLiC on mean log-probabilities (Zhao et al. 2023)."""

from typing import TYPE_CHECKING

from fsdpo_train.losses.preference_losses import PairLogprobs, PreferenceLoss

if TYPE_CHECKING:
    from torch import Tensor

    from fsdpo_train.losses.preference_losses import PreferenceSpec


def slic_loss(pairs: PairLogprobs, spec: "PreferenceSpec") -> "Tensor":
    """Return the loss of each pair, [P]."""
    chosen_P = pairs.chosen_P / pairs.chosen_tokens_P
    rejected_P = pairs.rejected_P / pairs.rejected_tokens_P
    return (1 - (chosen_P - rejected_P) / spec.beta).clamp_min(0)


SLIC = PreferenceLoss(
    name="slic",
    summary="Hinge on mean log-probabilities",
    source="Zhao et al. 2023",
    uses_reference=False,
    pair_loss=slic_loss,
)
