"""The loss of a process reward model (paper, section 3.3)."""

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits


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
    logit_BK = logit_BK.float() if logit_BK.element_size() < 4 else logit_BK
    label_BK = label_BK.to(logit_BK.dtype).masked_fill(~mask_BK, 0)
    loss_BK = binary_cross_entropy_with_logits(logit_BK, label_BK, reduction="none")
    if class_weights is not None:
        wrong, right = class_weights
        loss_BK = loss_BK * (label_BK * right + (1 - label_BK) * wrong)
    loss_B = (loss_BK * mask_BK).sum(-1)
    if reduce == "mean":
        loss_B = loss_B / mask_BK.sum(-1).clamp_min(1)
    return loss_B.mean()
