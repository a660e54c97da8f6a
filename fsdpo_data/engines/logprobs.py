"""Log-probabilities of given tokens without a [tokens × vocabulary] tensor, and models of them."""

from collections.abc import Callable
from types import MethodType
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.sharing import TreeAttention, decoder_of, tree_inputs, use_tree_attention

#: Tokens that a model is tried on, and the error that rounding may explain.
_PROBE, _ROUNDING = 8, 1e-3
#: Tokens whose logits are held at once, at most; on CPUs more are no faster, nor more logits.
ON_CPU, ON_GPU, LOGITS = 512, 8192, 2**26
#: Logits that a CPU widens at a time: they stay in its caches.
CACHED = 2**19


def chunk_size(vocabulary: int, device: torch.device) -> int:
    """Return of how many tokens logits are held at once: a power of two, as memory is free."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free, most = torch.cuda.mem_get_info(device)[0] + kept, ON_GPU
    else:
        free, most = psutil.virtual_memory().available, min(ON_CPU, LOGITS // vocabulary)
    # A quarter of it would hold them three times, in float32.
    fits = min(most, int(free) // (4 * 12 * vocabulary))
    return max(16, 1 << fits.bit_length() >> 1)


def token_logprobs(
    hidden_ND: Tensor, target_N: Tensor, head: Callable[[Tensor], Tensor], chunk: int = 0
) -> Tensor:
    """Return log π of each target, shape [N], float32 or the head's own dtype if wider.

    The head runs chunk by chunk and, but for the last, with which gradients begin, once more in the
    backward pass, so memory for logits is that of one chunk in either direction. It is called as a
    module, never by its weight: DeepSpeed gathers a sharded weight only around such a call.
    ``hidden_ND`` predict the targets, ``chunk`` of them at a time; 0: :func:`chunk_size`.
    """
    if not len(target_N):
        return hidden_ND.new_zeros(0)
    width = getattr(head, "out_features", hidden_ND.shape[-1])
    chunk = chunk or chunk_size(width, hidden_ND.device)

    def of_chunk(hidden_CD: Tensor, target_C: Tensor) -> Any:
        return _Picked.apply(head(hidden_CD), target_C)

    *first, last = zip(hidden_ND.split(chunk), target_N.split(chunk), strict=True)
    parts = [checkpoint(of_chunk, *each, use_reentrant=False) for each in first]
    return torch.cat([*parts, of_chunk(*last)])


def widened(value: Tensor) -> Tensor:
    """Return halves in float32, and what is wider as it is."""
    return value.float() if value.element_size() < 4 else value


class _Picked(torch.autograd.Function):  # type: ignore[misc]
    """From logits [C, V] and targets [C] to log π of the targets, [C], float32 at least.

    The gradient, (one-hot − softmax) · upstream, takes the place of the logits, which nobody else
    may hold. Of what is wider than they are, a CPU holds a few rows, in its caches.
    """

    @staticmethod
    def forward(ctx: Any, logit_CV: Tensor, target_C: Tensor) -> Tensor:
        on_cpu, (tokens, vocabulary) = logit_CV.device.type == "cpu", logit_CV.shape
        ctx.rows = max(1, CACHED // vocabulary) if on_cpu else tokens
        total_C = torch.cat([widened(some).logsumexp(-1) for some in logit_CV.split(ctx.rows)])
        ctx.save_for_backward(logit_CV, target_C, total_C)
        return widened(logit_CV.gather(-1, target_C[:, None]).squeeze(-1)) - total_C

    @staticmethod
    def backward(ctx: Any, upstream_C: Tensor) -> tuple[Tensor, None]:
        logit_CV, target_C, total_C = ctx.saved_tensors
        tables = (logit_CV, *(each[:, None] for each in (target_C, total_C, upstream_C)))
        rows = zip(*(table.split(ctx.rows) for table in tables), strict=True)
        for logit_RV, target_R1, total_R1, upstream_R1 in rows:
            grad_RV = widened(logit_RV).sub_(total_R1).exp_().mul_(-upstream_R1)
            logit_RV.copy_(grad_RV.scatter_add_(-1, target_R1, upstream_R1))
        return logit_CV, None


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


def check_architecture(model: Any) -> None:
    """InputError if there is a :func:`head_error`, which :func:`return_logprobs` would not see."""
    if error := head_error(model):
        raise InputError(
            f"{type(model).__name__} changes its logits after the vocabulary head (by up to "
            f"{error:.3g}; soft caps and logit scales do). Preference training reads the head "
            "alone; choose a model without them."
        )


def return_logprobs(
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
