"""Log-probabilities of given tokens without a [tokens × vocabulary] tensor.

:func:`token_logprobs` computes them from hidden states; :func:`patch_to_return_logprobs` makes a
model return them.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.memory_limit import available_memory
from fsdpo_data.engines.prefix_sharing.model_attention import (
    TreeAttention,
    tree_inputs,
    use_tree_attention,
)
from fsdpo_data.models.checkpoints import decoder_of

_PROBE_TOKENS = 8  #: Tokens of the input that compares a model's logits with its head.
_MAX_RELATIVE_ROUNDING = 1e-3  #: Relative difference of logits that rounding may cause.
#: Maximum tokens per chunk without gradients. On CPUs, larger chunks are not faster.
MAX_TOKENS_CPU = 512
MAX_TOKENS_GPU = 8192
#: Maximum logits (tokens × vocabulary) per chunk on CPUs.
MAX_LOGITS_CPU = 2**25
#: Logits that a CPU converts to float32 at once, so that they stay in its caches.
CPU_CACHE_LOGITS = 2**19
_BYTES_PER_LOGIT = 12  #: Three float32 copies of a logit.


def chunk_size(vocabulary: int, device: torch.device) -> int:
    """Return how many tokens to process at once without gradients, which are never recomputed."""
    if device.type == "cuda":
        free_bytes = free_gpu_memory(device)
        max_tokens = MAX_TOKENS_GPU
    else:
        free_bytes = available_memory()
        max_tokens = min(MAX_TOKENS_CPU, MAX_LOGITS_CPU // vocabulary)
    return min(largest_chunk(vocabulary, free_bytes), max(16, _floor_power_of_two(max_tokens)))


def largest_chunk(vocabulary: int, free_bytes: int) -> int:
    """Return the tokens whose logits take at most a quarter of the free memory.

    The number is a power of two, and at least 16.
    """
    return max(16, _floor_power_of_two(free_bytes // (4 * _BYTES_PER_LOGIT * vocabulary)))


def _floor_power_of_two(number: int) -> int:
    """Return the largest power of two that is at most ``number``; 0 for 0."""
    return 1 << number.bit_length() >> 1


def free_gpu_memory(device: torch.device) -> int:
    """Return the free bytes of a GPU, with the memory that torch has reserved and does not use."""
    cached_bytes = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + cached_bytes)


def token_logprobs(
    hidden_ND: Tensor, target_N: Tensor, head: Callable[[Tensor], Tensor], chunk_tokens: int = 0
) -> Tensor:
    """Return log π of each target token, shape [N], in float32 or wider.

    The head processes one chunk of positions at a time, so only one chunk of logits is in memory.
    The backward pass recomputes every chunk except the last, where the gradients start. A head that
    is not a plain linear layer runs as a module call.

    Args:
        hidden_ND: Hidden state at the position that predicts each target.
        target_N: Ids of the target tokens.
        head: Vocabulary head: hidden states [C, D] to logits [C, V].
        chunk_tokens: Tokens per chunk; 0 uses :func:`chunk_size`.
    """
    if not len(target_N):
        return hidden_ND.new_zeros(0)
    vocabulary = getattr(head, "out_features", hidden_ND.shape[-1])
    chunk_tokens = chunk_tokens or chunk_size(vocabulary, hidden_ND.device)
    if not hasattr(getattr(head, "weight", None), "ds_id"):
        compute = _linear_logprobs if _is_plain_linear(head) else _module_logprobs
        return compute(hidden_ND, target_N, head, chunk_tokens)
    # DeepSpeed shards this weight. All processes gather it together, in each call of the module.
    # Their batches differ in length, so one call per chunk would leave some of them waiting.
    module: Any = head
    forward = module.forward
    module.forward = partial(_module_logprobs, head=forward, chunk_tokens=chunk_tokens)
    try:
        logprob_N: Tensor = module(hidden_ND, target_N)
    finally:
        del module.forward
    return logprob_N


def _linear_logprobs(hidden_ND: Tensor, target_N: Tensor, head: Any, chunk_tokens: int) -> Tensor:
    """Return log π of the targets, shape [N], by the weight of a linear head."""
    hidden_ND = hidden_ND.to(head.weight.dtype)
    logprob_N: Tensor = _ChunkedHeadLogprobs.apply(hidden_ND, head.weight, target_N, chunk_tokens)
    return logprob_N


def _module_logprobs(hidden_ND: Tensor, target_N: Tensor, head: Any, chunk_tokens: int) -> Tensor:
    """Return log π of the targets, shape [N], by one call of the head per chunk."""

    def chunk_logprobs(hidden_CD: Tensor, target_C: Tensor) -> Any:
        """Return the log-probabilities of one chunk."""
        return _TargetLogprobs.apply(head(hidden_CD), target_C)

    *first_chunks, (last_hidden_CD, last_target_C) = zip(
        hidden_ND.split(chunk_tokens), target_N.split(chunk_tokens), strict=True
    )
    logprobs = [
        checkpoint(chunk_logprobs, hidden_CD, target_C, use_reentrant=False)
        for hidden_CD, target_C in first_chunks
    ]
    return torch.cat([*logprobs, chunk_logprobs(last_hidden_CD, last_target_C)])


def _is_plain_linear(head: Any) -> bool:
    """Return whether a call of the head only multiplies by its weight.

    A bias, hooks, a patched forward, and an autocast to another type all need a call of the module.
    """
    if type(head) is not torch.nn.Linear or "forward" in vars(head) or head.bias is not None:
        return False
    weight = head.weight
    device_type = weight.device.type
    is_cast = (
        torch.is_autocast_enabled(device_type)
        and torch.get_autocast_dtype(device_type) != weight.dtype
    )
    return not (is_cast or head._forward_hooks or head._forward_pre_hooks)


def upcast_half(value: Tensor) -> Tensor:
    """Return a half-precision tensor in float32, and other tensors unchanged."""
    return value.float() if value.element_size() < 4 else value


def _gather_logprobs(logit_CV: Tensor, target_C: Tensor) -> tuple[Tensor, Tensor]:
    """Return log π of the targets and the log-sum-exp of the logits, both [C], at least float32."""
    rows = _rows_at_once(logit_CV)
    logsumexp_C = torch.cat(
        [upcast_half(logit_RV).logsumexp(-1) for logit_RV in logit_CV.split(rows)]
    )
    target_logit_C = upcast_half(logit_CV.gather(-1, target_C[:, None]).squeeze(-1))
    return target_logit_C - logsumexp_C, logsumexp_C


def _replace_by_gradient(
    logit_CV: Tensor, target_C: Tensor, logsumexp_C: Tensor, upstream_C: Tensor
) -> Tensor:
    """Overwrite logits with their gradient, (one-hot − softmax) · upstream, and return them."""
    rows = _rows_at_once(logit_CV)
    chunks = zip(
        logit_CV.split(rows),
        target_C[:, None].split(rows),
        logsumexp_C[:, None].split(rows),
        upstream_C[:, None].split(rows),
        strict=True,
    )
    for logit_RV, target_R1, logsumexp_R1, upstream_R1 in chunks:
        grad_RV = upcast_half(logit_RV).sub_(logsumexp_R1).exp_().mul_(-upstream_R1)
        logit_RV.copy_(grad_RV.scatter_add_(-1, target_R1, upstream_R1))
    return logit_CV


def _rows_at_once(logit_CV: Tensor) -> int:
    """Return how many rows to convert to float32 at once: on a CPU as many as its caches hold."""
    return max(1, CPU_CACHE_LOGITS // logit_CV.shape[1]) if logit_CV.is_cpu else len(logit_CV)


class _TargetLogprobs(torch.autograd.Function):  # type: ignore[misc]
    """Log π of targets [C] from logits [C, V]; the backward pass overwrites the logits."""

    @staticmethod
    def forward(ctx: Any, logit_CV: Tensor, target_C: Tensor) -> Tensor:
        """Return log π of the targets."""
        logprob_C, logsumexp_C = _gather_logprobs(logit_CV, target_C)
        ctx.save_for_backward(logit_CV, target_C, logsumexp_C)
        return logprob_C

    @staticmethod
    def backward(ctx: Any, upstream_C: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the logits."""
        logit_CV, target_C, logsumexp_C = ctx.saved_tensors
        return _replace_by_gradient(logit_CV, target_C, logsumexp_C, upstream_C), None


class _ChunkedHeadLogprobs(torch.autograd.Function):  # type: ignore[misc]
    """Log π of targets [N] from hidden states [N, D] and a head's weight [V, D], in chunks.

    The gradient of the weight is accumulated in place. Autograd would hold three copies: the old
    sum, the gradient of a chunk, and the new sum.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, target_N: Tensor, chunk_tokens: int
    ) -> Tensor:
        """Return log π of the targets."""
        buffer_CV = hidden_ND.new_empty(min(chunk_tokens, len(hidden_ND)), len(weight_VD))
        logprobs = []
        logsumexps = []
        for hidden_CD, target_C in zip(
            hidden_ND.split(chunk_tokens), target_N.split(chunk_tokens), strict=True
        ):
            logit_CV = torch.mm(hidden_CD, weight_VD.T, out=buffer_CV[: len(hidden_CD)])
            logprob_C, logsumexp_C = _gather_logprobs(logit_CV, target_C)
            logprobs.append(logprob_C)
            logsumexps.append(logsumexp_C)
        ctx.chunk_tokens = chunk_tokens
        logsumexp_N = torch.cat(logsumexps)
        ctx.save_for_backward(buffer_CV, hidden_ND, weight_VD, target_N, logsumexp_N)
        return torch.cat(logprobs)

    @staticmethod
    def backward(ctx: Any, upstream_N: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the hidden states and, if needed, of the weight."""
        buffer_CV, hidden_ND, weight_VD, target_N, logsumexp_N = ctx.saved_tensors
        grad_ND = torch.empty_like(hidden_ND)
        grad_VD = torch.zeros_like(weight_VD) if ctx.needs_input_grad[1] else None
        starts = range(0, len(hidden_ND), ctx.chunk_tokens)
        for start in reversed(starts):
            chunk = slice(start, start + ctx.chunk_tokens)
            hidden_CD = hidden_ND[chunk]
            logit_CV = buffer_CV[: len(hidden_CD)]
            if start != starts[-1]:  # the buffer still holds the logits of the last chunk
                torch.mm(hidden_CD, weight_VD.T, out=logit_CV)
            _replace_by_gradient(logit_CV, target_N[chunk], logsumexp_N[chunk], upstream_N[chunk])
            torch.mm(logit_CV, weight_VD, out=grad_ND[chunk])
            if grad_VD is not None:
                grad_VD.addmm_(logit_CV.T, hidden_CD)
        return grad_ND, grad_VD, None, None


def head_error(model: Any) -> float:
    """Return the largest difference between a model's logits and its head's output.

    Some architectures scale or cap their logits after the head. The result is 0 for all others.
    """
    vocabulary = model.get_input_embeddings().num_embeddings
    ids = torch.arange(1, 1 + _PROBE_TOKENS, device=model.device)[None] % vocabulary
    with torch.no_grad():
        model_logits = model(input_ids=ids, use_cache=False).logits
        hidden = decoder_of(model)(input_ids=ids, use_cache=False).last_hidden_state
        head_logits = model.get_output_embeddings()(hidden)
    error = float((head_logits - model_logits).abs().max())
    max_logit = max(1.0, float(model_logits.abs().max()))
    return error if error > _MAX_RELATIVE_ROUNDING * max_logit else 0.0


def check_plain_head(model: Any) -> None:
    """Check that a model's logits are the output of its head.

    Raises:
        InputError: if there is a :func:`head_error`, which :func:`patch_to_return_logprobs` would
            ignore.
    """
    if error := head_error(model):
        raise InputError(
            f"{type(model).__name__} changes its logits after the vocabulary head (by up to "
            f"{error:.3g}; soft caps and logit scales do so). Preference training uses only the "
            "head. Choose a model without such changes."
        )


def patch_to_return_logprobs(
    model: Any, *, attention: TreeAttention | None = None, has_plain_head: bool = True
) -> Any:
    """Patch ``model(**batch)`` to return log π of the batch's target tokens, shape [N].

    A batch needs ``source_N``, the positions that predict the targets in the flattened batch, and
    ``target_N``, the ids of the targets. DistributedDataParallel, DeepSpeed and autocast act on
    calls of the model, so the patch replaces ``forward``.

    Args:
        model: A causal language model, which is changed.
        attention: With a value, batches may contain a prompt once for several solutions.
        has_plain_head: False for a model with a :func:`head_error`. Then all logits are computed.

    Returns:
        The same model.
    """
    forward = _forward_to_logprobs if has_plain_head else _forward_to_logprobs_of_logits
    model.forward = MethodType(forward, model)
    if has_plain_head:
        model.head_chunk_tokens = 0
    if attention is not None:
        use_tree_attention(model, attention)
    return model


def logprob_models(models: Iterable[Any]) -> Iterator[Any]:
    """Yield the models of :func:`patch_to_return_logprobs` in ``models``, also inside of wrappers.

    Their attribute ``head_chunk_tokens`` is the number of tokens whose logits are computed at once;
    0 uses :func:`chunk_size`. Models with a :func:`head_error` always use it, and are left out.
    """
    for model in models:
        for module in model.modules():
            if "head_chunk_tokens" in vars(module):
                yield module


def _forward_to_logprobs(self: Any, source_N: Tensor, target_N: Tensor, **inputs: Tensor) -> Tensor:
    decoder_inputs = tree_inputs(self, **inputs)
    hidden_RLD = decoder_of(self)(**decoder_inputs, use_cache=False).last_hidden_state
    head = self.get_output_embeddings()
    hidden_ND = hidden_RLD.flatten(0, 1)[source_N]
    return token_logprobs(hidden_ND, target_N, head, self.head_chunk_tokens)


def _forward_to_logprobs_of_logits(
    self: Any, source_N: Tensor, target_N: Tensor, **inputs: Tensor
) -> Tensor:
    model_inputs = tree_inputs(self, **inputs)
    logits_RLV = type(self).forward(self, **model_inputs, use_cache=False).logits
    # The clone stands in for a head: the backward pass overwrites the logits of a chunk.
    return token_logprobs(logits_RLV.flatten(0, 1)[source_N], target_N, Tensor.clone)
