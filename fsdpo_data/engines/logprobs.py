"""Log-probabilities of given tokens without a [tokens × vocabulary] tensor, and models of them."""

from collections.abc import Callable
from types import MethodType
from typing import Any, TypeGuard

import psutil
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.prefix_sharing import (
    TreeAttention,
    decoder_of,
    tree_inputs,
    use_tree_attention,
)

#: Tokens that a model is tried on, and the error that rounding may explain.
_PROBE, _ROUNDING = 8, 1e-3
#: Tokens whose logits are held at once, at most; on CPUs more are no faster, nor more logits.
MAX_TOKENS_CPU, MAX_TOKENS_GPU, MAX_LOGITS_CPU = 512, 8192, 2**25
#: Logits that a CPU widens at a time: they stay in its caches.
CPU_CACHE_LOGITS = 2**19


def chunk_size(vocabulary: int, device: torch.device) -> int:
    """Return of how many tokens logits are held at once: a power of two, as memory is free."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free, most = torch.cuda.mem_get_info(device)[0] + kept, MAX_TOKENS_GPU
    else:
        free, most = (
            psutil.virtual_memory().available,
            min(MAX_TOKENS_CPU, MAX_LOGITS_CPU // vocabulary),
        )
    # A quarter of it would hold them three times, in float32.
    fits = min(most, int(free) // (4 * 12 * vocabulary))
    return max(16, 1 << fits.bit_length() >> 1)


def token_logprobs(
    hidden_ND: Tensor, target_N: Tensor, head: Callable[[Tensor], Tensor], chunk: int = 0
) -> Tensor:
    """Return log π of each target, shape [N], float32 or the head's own dtype if wider.

    The head runs chunk by chunk and, but for the last, with which gradients begin, once more in the
    backward pass, so memory for logits is that of one chunk in either direction. One that is more
    than its weight is called as a module: DeepSpeed gathers what is sharded around such a call.
    ``hidden_ND`` predict the targets, ``chunk`` of them at a time; 0: :func:`chunk_size`.
    """
    if not len(target_N):
        return hidden_ND.new_zeros(0)
    width = getattr(head, "out_features", hidden_ND.shape[-1])
    chunk = chunk or chunk_size(width, hidden_ND.device)
    if _is_plain(head):
        found: Tensor = _ChunkedHeadLogprobs.apply(
            hidden_ND.to(head.weight.dtype), head.weight, target_N, chunk
        )
        return found

    def of_chunk(hidden_CD: Tensor, target_C: Tensor) -> Any:
        return _TargetLogprobs.apply(head(hidden_CD), target_C)

    *first, last = zip(hidden_ND.split(chunk), target_N.split(chunk), strict=True)
    parts = [checkpoint(of_chunk, *each, use_reentrant=False) for each in first]
    return torch.cat([*parts, of_chunk(*last)])


def _is_plain(head: Any) -> TypeGuard[torch.nn.Linear]:
    """Say whether a head is its weight, whole and computed with as it is, and nothing besides."""
    if type(head) is not torch.nn.Linear or "forward" in vars(head) or head.bias is not None:
        return False
    weight, kind = head.weight, head.weight.device.type
    cast = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) != weight.dtype
    return not (cast or head._forward_hooks or head._forward_pre_hooks or hasattr(weight, "ds_id"))


def upcast_half(value: Tensor) -> Tensor:
    """Return halves in float32, and what is wider as it is."""
    return value.float() if value.element_size() < 4 else value


def _gather_logprobs(logit_CV: Tensor, target_C: Tensor) -> tuple[Tensor, Tensor]:
    """Return log π of targets and the logits' log-sum-exp, [C] each, float32 at least."""
    total_C = torch.cat(
        [upcast_half(some).logsumexp(-1) for some in logit_CV.split(_rows(logit_CV))]
    )
    return upcast_half(logit_CV.gather(-1, target_C[:, None]).squeeze(-1)) - total_C, total_C


def _logits_to_gradient(logit_CV: Tensor, *given_C: Tensor) -> Tensor:
    """Put the gradient, (one-hot − softmax) · upstream, in the place of the logits.

    Nobody else may hold them. ``given_C`` are targets, log-sum-exp and upstream gradients.
    """
    tables = (logit_CV, *(each[:, None] for each in given_C))
    rows = zip(*(table.split(_rows(logit_CV)) for table in tables), strict=True)
    for logit_RV, target_R1, total_R1, upstream_R1 in rows:
        grad_RV = upcast_half(logit_RV).sub_(total_R1).exp_().mul_(-upstream_R1)
        logit_RV.copy_(grad_RV.scatter_add_(-1, target_R1, upstream_R1))
    return logit_CV


def _rows(logit_CV: Tensor) -> int:
    """Return how many rows are computed with at a time: of what is wider, a CPU holds a few."""
    return max(1, CPU_CACHE_LOGITS // logit_CV.shape[1]) if logit_CV.is_cpu else len(logit_CV)


class _TargetLogprobs(torch.autograd.Function):  # type: ignore[misc]
    """From logits [C, V] and targets [C] to log π of the targets, [C]."""

    @staticmethod
    def forward(ctx: Any, logit_CV: Tensor, target_C: Tensor) -> Tensor:
        found_C, total_C = _gather_logprobs(logit_CV, target_C)
        ctx.save_for_backward(logit_CV, target_C, total_C)
        return found_C

    @staticmethod
    def backward(ctx: Any, upstream_C: Tensor) -> tuple[Tensor, None]:
        return _logits_to_gradient(*ctx.saved_tensors, upstream_C), None


class _ChunkedHeadLogprobs(torch.autograd.Function):  # type: ignore[misc]
    """The same behind a product with a head's weight, [V, D], whose gradient adds up in place.

    Autograd would hold it three times: what there was, what a chunk adds, and their sum.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, target_N: Tensor, chunk: int
    ) -> Tensor:
        room_CV = hidden_ND.new_empty(min(chunk, len(hidden_ND)), len(weight_VD))
        chunks = zip(hidden_ND.split(chunk), target_N.split(chunk), strict=True)
        found = [
            _gather_logprobs(
                torch.mm(hidden_CD, weight_VD.T, out=room_CV[: len(hidden_CD)]), target_C
            )
            for hidden_CD, target_C in chunks
        ]
        logprob_N, total_N = (torch.cat(each) for each in zip(*found, strict=True))
        ctx.chunk = chunk
        ctx.save_for_backward(room_CV, hidden_ND, weight_VD, target_N, total_N)
        return logprob_N

    @staticmethod
    def backward(ctx: Any, upstream_N: Tensor) -> tuple[Tensor | None, ...]:
        room_CV, hidden_ND, weight_VD, *given = ctx.saved_tensors
        grad_ND = torch.empty_like(hidden_ND)
        grad_VD = torch.zeros_like(weight_VD) if ctx.needs_input_grad[1] else None
        tables = (hidden_ND, grad_ND, *given, upstream_N)
        chunks = list(zip(*(table.split(ctx.chunk) for table in tables), strict=True))
        for place, (hidden_CD, grad_CD, *given_C) in enumerate(reversed(chunks)):
            logit_CV = room_CV[: len(hidden_CD)]
            if place:  # those of the last chunk are there
                torch.mm(hidden_CD, weight_VD.T, out=logit_CV)
            torch.mm(_logits_to_gradient(logit_CV, *given_C), weight_VD, out=grad_CD)
            if grad_VD is not None:
                grad_VD.addmm_(logit_CV.T, hidden_CD)
        return grad_ND, grad_VD, None, None


def head_error(model: Any) -> float:
    """Return by how much a model's logits differ from its head on its last hidden states.

    Some architectures scale or cap their logits outside the head; 0 is told of the others.
    """
    size = model.get_input_embeddings().num_embeddings
    ids = torch.arange(1, 1 + _PROBE, device=model.device)[None] % size
    with torch.no_grad():
        expected = model(input_ids=ids, use_cache=False).logits
        hidden = decoder_of(model)(input_ids=ids, use_cache=False).last_hidden_state
        found = model.get_output_embeddings()(hidden)
    error = float((found - expected).abs().max())
    return error if error > _ROUNDING * max(1.0, float(expected.abs().max())) else 0.0


def check_plain_head(model: Any) -> None:
    """InputError if there is a :func:`head_error`, which :func:`patch_to_return_logprobs` would not see."""
    if error := head_error(model):
        raise InputError(
            f"{type(model).__name__} changes its logits after the vocabulary head (by up to "
            f"{error:.3g}; soft caps and logit scales do). Preference training reads the head "
            "alone; choose a model without them."
        )


def patch_to_return_logprobs(
    model: Any, *, attention: TreeAttention | None = None, plain_head: bool = True
) -> Any:
    """Make ``model(**batch)`` return log π of the batch's completion tokens, shape [N].

    The forward pass is replaced, rather than walked around, because DistributedDataParallel,
    DeepSpeed and autocast act on calls of the whole model. The model is changed, and returned.

    With an ``attention``, batches may hold prompts once for several solutions. Without a
    ``plain_head``, for a model with a :func:`head_error`, all logits are computed.
    """
    model.forward = MethodType(_logprobs if plain_head else _logprobs_of_logits, model)
    if attention is not None:
        use_tree_attention(model, attention)
    return model


def _logprobs_of_logits(self: Any, source_N: Tensor, target_N: Tensor, **inputs: Tensor) -> Tensor:
    read = tree_inputs(self, **inputs)
    logits_RLV = type(self).forward(self, **read, use_cache=False).logits
    return token_logprobs(logits_RLV.flatten(0, 1)[source_N], target_N, Tensor.clone)


def _logprobs(self: Any, source_N: Tensor, target_N: Tensor, **inputs: Tensor) -> Tensor:
    read = tree_inputs(self, **inputs)
    hidden_RLD = decoder_of(self)(**read, use_cache=False).last_hidden_state
    head = self.get_output_embeddings()
    return token_logprobs(hidden_RLD.flatten(0, 1)[source_N], target_N, head)
