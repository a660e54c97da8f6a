"""Log-probabilities of given tokens without a [tokens × vocabulary] tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

#: Tokens whose logits are held at once. 1,024 tokens of a vocabulary of 152k are 0.6 GB.
CHUNK = 1024


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
    chosen_C = logit_CV.gather(-1, target_C[:, None]).squeeze(-1)
    return chosen_C - logit_CV.logsumexp(-1)
