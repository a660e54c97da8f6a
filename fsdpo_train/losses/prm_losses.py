r"""Losses of process reward models: one entry per loss, with all that training asks about it.

Name suffixes give the shapes: ``_B`` solutions, ``_K`` label positions of a solution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

from pydantic import Field

from fsdpo_data.core.lazy import torch
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.registry import Registry
from fsdpo_data.engines.options import IMPLICIT_REWARD_BETA
from fsdpo_data.steps.first_error import RIGHT_STEP_LABEL
from fsdpo_train.losses.loss_options import LOSS_PANEL

if TYPE_CHECKING:
    from torch import Tensor


class PrmLossFunction(Protocol):
    """A function that returns the mean loss over the solutions of a batch."""

    def __call__(
        self,
        logit_BK: Tensor,
        label_BK: Tensor,
        mask_BK: Tensor,
        *,
        spec: PrmLossSpec,
    ) -> Tensor:
        """Return the loss, a scalar.

        Args:
            logit_BK: Logits of the label positions.
            label_BK: Labels in [0, 1].
            mask_BK: Whether the label position exists.
            spec: The loss with its parameters.
        """
        ...


@dataclass(frozen=True)
class PrmLoss:
    """A loss of process reward models."""

    name: str  #: The name on the command line.
    summary: str  #: One sentence about the loss, for ``--help``.
    source: str  #: The paper, with its section or equation.
    function: PrmLossFunction  #: Computes the loss of a batch.
    options: tuple[str, ...]  #: Names of the options that the loss reads.
    #: Whether the model stays a policy. Its logit is then β·log π/π_ref, relative to the start
    #: model. Otherwise the model gets a reward head.
    trains_policy: bool = False
    #: Whether the loss reads only the last label of a solution, its outcome. A solution whose last
    #: step exceeds the context length then has no label to train on.
    reads_last_label: bool = False

    @property
    def description(self) -> str:
        """The text about the loss in ``--help``."""
        flags = ("--" + option.replace("_", "-") for option in self.options)
        options = ", ".join(flags)
        return f"{self.summary} ({self.source}; reads {options})"


#: The losses of process reward models by name.
PRM_LOSSES = Registry("PRM loss", PrmLoss)


class PrmLossSpec(Options):
    """The loss of a reward model with its parameters."""

    loss: Annotated[str, Option(choices=PRM_LOSSES, panel=LOSS_PANEL)] = "bce"
    """Name of the loss."""
    beta: Annotated[float, Field(gt=0), Option(panel=LOSS_PANEL)] = IMPLICIT_REWARD_BETA
    """Factor β of the log-ratio of a policy."""
    zeta: Annotated[float, Field(ge=0), Option(panel=LOSS_PANEL)] = 4.0
    """Margin ζ between right and wrong steps, in logits."""
    loss_reduction: Literal["sum", "mean"] = "sum"
    """Reduction over the label positions of a solution: ``sum``, as in Full-Step-DPO, or ``mean``.
    """

    @property
    def prm_loss(self) -> PrmLoss:
        """The registered loss."""
        return PRM_LOSSES.find(self.loss, field="loss")


def prm_loss(
    logit_BK: Tensor,
    label_BK: Tensor,
    mask_BK: Tensor,
    *,
    reduction: str,
) -> Tensor:
    """Return the binary cross-entropy of step rewards (section 3.3 of the paper).

    .. math:: L_PRM = −Σ_i [ y_i log r_i + (1 − y_i) log(1 − r_i) ],  r_i = σ(logit_i)

    Args:
        logit_BK: Output of the reward head at each step.
        label_BK: Step labels y in [0, 1]. Monte-Carlo labels are fractions.
        mask_BK: Whether the step exists.
        reduction: How the steps of a solution are reduced: ``sum`` (the paper's) or ``mean``.

    Returns:
        The mean over solutions, a scalar. It is float32 if the logits have half precision.
    """
    logit_BK = _upcast_half(logit_BK)
    label_BK = label_BK.to(logit_BK.dtype).masked_fill(~mask_BK, 0)
    loss_BK = torch.nn.functional.binary_cross_entropy_with_logits(
        logit_BK, label_BK, reduction="none"
    )
    loss_B = (loss_BK * mask_BK).sum(-1)
    if reduction == "mean":
        loss_B = loss_B / mask_BK.sum(-1).clamp_min(1)
    return loss_B.mean()


def pqm_loss(logit_BK: Tensor, label_BK: Tensor, mask_BK: Tensor, *, zeta: float) -> Tensor:
    """Return the PQM ranking loss of step values (equation 10 of Li and Li 2024, 2410.11287).

    Q is the logit of a step, c runs over the right steps, and W holds the wrong steps:

    .. math:: L = −mean_c log( exp Q_c / ( Σ_{right q ≤ c} exp Q_q + Σ_{w ∈ W} exp(Q_w + ζ) ) )

    As in the authors' code, a right step with Q = 0 precedes the first step. The virtual step is
    one of the c only if the solution has a wrong step.

    Args:
        logit_BK: Output of the reward head at each step, the step's Q.
        label_BK: Step labels. A step is right if its label is at least 0.5.
        mask_BK: Whether the step exists.
        zeta: Margin ζ by which right steps must exceed wrong steps.

    Returns:
        The mean over solutions of the mean over their right steps, a scalar.
    """
    logit_BK = _upcast_half(logit_BK)
    right_BK = mask_BK & (label_BK >= RIGHT_STEP_LABEL)
    wrong_BK = mask_BK & (label_BK < RIGHT_STEP_LABEL)
    # From here on, column 0 of value_BK, right_BK and loss_BK is the virtual step with Q = 0.
    pad = torch.nn.functional.pad
    value_BK = pad(logit_BK, (1, 0))
    right_BK = pad(right_BK, (1, 0), value=True)
    right_sum_BK = value_BK.masked_fill(~right_BK, -torch.inf).logcumsumexp(-1)
    # With −∞, the gradient of a row without a wrong step would be NaN. A finite floor gives 0.
    floor = torch.finfo(logit_BK.dtype).min / 2
    wrong_sum_B1 = (logit_BK + zeta).masked_fill(~wrong_BK, floor).logsumexp(-1, keepdim=True)
    loss_BK = torch.logaddexp(right_sum_BK, wrong_sum_B1.expand_as(right_sum_BK)) - value_BK
    ranked_BK = right_BK.clone()
    ranked_BK[:, 0] = wrong_BK.any(-1)
    loss_B = loss_BK.masked_fill(~ranked_BK, 0).sum(-1) / ranked_BK.sum(-1).clamp_min(1)
    return loss_B.mean()


def _upcast_half(value: Tensor) -> Tensor:
    return value.float() if value.element_size() < 4 else value


def _bce(
    logit_BK: Tensor,
    label_BK: Tensor,
    mask_BK: Tensor,
    *,
    spec: PrmLossSpec,
) -> Tensor:
    return prm_loss(
        logit_BK,
        label_BK,
        mask_BK,
        reduction=spec.loss_reduction,
    )


def _pqm(
    logit_BK: Tensor,
    label_BK: Tensor,
    mask_BK: Tensor,
    *,
    spec: PrmLossSpec,
) -> Tensor:
    return pqm_loss(logit_BK, label_BK, mask_BK, zeta=spec.zeta)


def _outcome_bce(
    logit_BK: Tensor,
    label_BK: Tensor,
    mask_BK: Tensor,
    *,
    spec: PrmLossSpec,
) -> Tensor:
    """Return the cross-entropy of the outcomes, which are the last labels of the solutions."""
    n_remaining_BK = mask_BK.flip(-1).cumsum(-1).flip(-1)  # labels from this one to the last
    is_last_BK = mask_BK & (n_remaining_BK == 1)
    # A solution has one outcome, so every reduction gives the same loss.
    return prm_loss(logit_BK, label_BK, is_last_BK, reduction="sum")


PRM_LOSSES.register(
    PrmLoss(
        name="bce",
        summary="Cross-entropy of each step against its label",
        source="Full-Step-DPO, section 3.3",
        function=_bce,
        options=("loss_reduction", "last_step_only"),
    )
)
PRM_LOSSES.register(
    PrmLoss(
        name="pqm",
        summary="Right steps rank above wrong steps and above earlier right steps",
        source="Li and Li 2024, equation 10",
        function=_pqm,
        options=("zeta",),
    )
)
PRM_LOSSES.register(
    PrmLoss(
        name="implicit",
        summary=(
            "Trains a policy, whose log-ratio to the start model predicts the outcome. Score an "
            "implicit PRM with `--prm` and `--reference`"
        ),
        source="Yuan et al. 2024",
        function=_outcome_bce,
        options=("beta",),
        trains_policy=True,
        reads_last_label=True,
    )
)
