"""The losses of process reward models: the paper's (section 3.3), and a ranking of steps."""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fsdpo_data.engines.logprobs import upcast_half


def prm_loss(
    logit_BK: Tensor,
    label_BK: Tensor,
    mask_BK: Tensor,
    *,
    reduce: str,
    class_weights: tuple[float, float] | None = None,
) -> Tensor:
    """Binary cross-entropy of step rewards against step labels (the paper's equation of L_PRM).

    ``logit_BK`` is the head's output at each step, whose sigmoid is the reward; ``label_BK`` are in
    [0, 1], soft ones being Monte-Carlo estimates; ``mask_BK`` says whether there is such a step.
    Over the steps of a solution ``reduce`` takes the ``sum`` (the paper's) or the ``mean``;
    ``class_weights`` are those of (wrong, right) steps, of both of which a soft label takes its
    share.

    Returned is the mean over solutions, of the logits' dtype (float32 for half precision).
    """
    logit_BK = upcast_half(logit_BK)
    label_BK = label_BK.to(logit_BK.dtype).masked_fill(~mask_BK, 0)
    loss_BK = binary_cross_entropy_with_logits(logit_BK, label_BK, reduction="none")
    if class_weights is not None:
        wrong, right = class_weights
        loss_BK = loss_BK * (label_BK * right + (1 - label_BK) * wrong)
    loss_B = (loss_BK * mask_BK).sum(-1)
    if reduce == "mean":
        loss_B = loss_B / mask_BK.sum(-1).clamp_min(1)
    return loss_B.mean()


def pqm_loss(logit_BK: Tensor, label_BK: Tensor, mask_BK: Tensor, *, zeta: float) -> Tensor:
    """Rank steps: right ones over all wrong ones by ``zeta``, and each over right ones before it.

    Equation 10 of Li and Li (2024, 2410.11287) as their code has it: a step of value 0, right
    where any step is wrong, stands before the first one.

    Args:
        logit_BK: The head's output at each step, the step's Q.
        label_BK: Labels; from 0.5 up a step is right.
        mask_BK: Whether there is such a step.
        zeta: Margin by which wrong steps are pushed down.

    Returns:
        The mean over solutions of the mean over their right steps, a scalar.
    """
    logit_BK = upcast_half(logit_BK)
    right_BK, wrong_BK = (mask_BK & (label_BK >= 0.5), mask_BK & (label_BK < 0.5))
    pad = torch.nn.functional.pad
    value_BK, right_BK = pad(logit_BK, (1, 0)), pad(right_BK, (1, 0), value=True)
    below = -torch.inf
    up_to_BK = value_BK.masked_fill(~right_BK, below).logcumsumexp(-1)
    # A finite floor: where nothing is wrong, its gradient is 0 and no NaN.
    floor = torch.finfo(logit_BK.dtype).min / 2
    wrong_B1 = (logit_BK + zeta).masked_fill(~wrong_BK, floor).logsumexp(-1, keepdim=True)
    loss_BK = torch.logaddexp(up_to_BK, wrong_B1.expand_as(up_to_BK)) - value_BK
    ranked_BK = right_BK.clone()
    ranked_BK[:, 0] = wrong_BK.any(-1)
    loss_B = loss_BK.masked_fill(~ranked_BK, 0).sum(-1) / ranked_BK.sum(-1).clamp_min(1)
    return loss_B.mean()
