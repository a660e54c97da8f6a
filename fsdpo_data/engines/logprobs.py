"""Log-probabilities of given tokens without a [tokens × vocabulary] tensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

#: Tokens whose logits are held at once. 512 tokens of a vocabulary of 152k are 0.3 GB.
CHUNK = 512


def token_logprobs(
    hidden_ND: Tensor, target_N: Tensor, head: Callable[[Tensor], Tensor], chunk: int = CHUNK
) -> Tensor:
    """Return log π of each target, shape [N], float32 or the head's own dtype if wider.

    The head runs chunk by chunk and once more in the backward pass, so memory for logits is that
    of one chunk in either direction. It is called as a module, never by its weight: DeepSpeed
    gathers a sharded weight only around such a call.

    Args:
        hidden_ND: Hidden states that predict the targets.
        target_N: Token ids.
        head: The vocabulary head, hidden states to logits.
        chunk: Tokens at a time.
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    if not len(target_N):
        return hidden_ND.new_zeros(0)
    parts = [
        checkpoint(_chunk_logprobs, hidden, target, head, use_reentrant=False)
        for hidden, target in zip(hidden_ND.split(chunk), target_N.split(chunk), strict=True)
    ]
    return torch.cat(parts)


def _chunk_logprobs(
    hidden_CD: Tensor, target_C: Tensor, head: Callable[[Tensor], Tensor]
) -> Tensor:
    logit_CV = head(hidden_CD)
    logit_CV = logit_CV.float() if logit_CV.element_size() < 4 else logit_CV
    logp_C: Tensor = _picked().apply(logit_CV, target_C)
    return logp_C


@cache
def _picked() -> Any:
    """Return the function from logits [C, V] and targets [C] to log π of the targets, [C].

    Its gradient, (one-hot − softmax) · upstream, is made in one table beside the logits. Autograd
    would make four: of the exponentials, of the choice, of their sum, and one more on the way.
    """
    import torch

    class Picked(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, logit_CV: Tensor, target_C: Tensor) -> Tensor:
            total_C = logit_CV.logsumexp(-1)
            ctx.save_for_backward(logit_CV, target_C, total_C)
            return logit_CV.gather(-1, target_C[:, None]).squeeze(-1) - total_C

        @staticmethod
        def backward(ctx: Any, upstream_C: Tensor) -> tuple[Tensor, None]:
            logit_CV, target_C, total_C = ctx.saved_tensors
            grad_CV = (logit_CV - total_C[:, None]).exp_().mul_(-upstream_C[:, None])
            return grad_CV.scatter_add_(-1, target_C[:, None], upstream_C[:, None]), None

    return Picked
