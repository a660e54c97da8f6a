"""Attention over prefix trees: the masks, and an attention function for transformers.

There are two implementations:

- FlexAttention, on GPUs, skips the blocks of the mask in which no token attends to another.
- Elsewhere FlexAttention would not be compiled and would hold all scores. There, attention is
  computed segment by segment: a prompt by itself, a solution with the keys of its prompt.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fsdpo_data.core.errors import InputError

FLEX_BLOCK_TOKENS = 128  #: Block size of FlexAttention; rows are padded to a multiple.
#: Tokens of a solution that attend at once. Larger chunks compute more masked scores, smaller
#: chunks have more overhead.
_QUERY_CHUNK_TOKENS = 512
#: Arguments of attention functions that tree attention does not implement.
_UNSUPPORTED_ATTENTION_ARGUMENTS = ("softcap", "s_aux", "position_bias")


class Segment(NamedTuple):
    """A prompt or a solution in a row of a prefix tree."""

    n_tokens: int  #: Length of the segment.
    prompt_index: int  #: Index of the prompt among the segments; a prompt has its own index.


def block_mask(segments: Sequence[Segment], device: Any) -> Any:
    """Return the mask of a tree for FlexAttention."""
    from torch.nn.attention.flex_attention import create_block_mask

    n_tokens_N, prompt_index_N = torch.tensor(segments, device=device).T
    segment_L = torch.arange(len(segments), device=device).repeat_interleave(n_tokens_N)
    prompt_L = prompt_index_N[segment_L]

    def is_visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Return whether a query attends to a key."""
        is_same_segment = segment_L[key] == segment_L[query]
        return (is_same_segment | (segment_L[key] == prompt_L[query])) & (key <= query)

    create_mask = _compile(create_block_mask, segment_L.device.type)
    row_tokens = len(segment_L)
    return create_mask(
        is_visible, B=None, H=None, Q_LEN=row_tokens, KV_LEN=row_tokens, device=device
    )


def lower_right_mask(segments: Sequence[Segment], dtype: torch.dtype, device: Any) -> Tensor:
    """Return the additive mask, [1, 1, T, S], of the last tokens of the longest solution.

    Its lower right corner [t, s] is the mask of any t queries with s keys.
    """
    solutions = [segment for index, segment in enumerate(segments) if index != segment.prompt_index]
    max_queries = max((solution.n_tokens for solution in solutions), default=0)
    max_queries = min(_QUERY_CHUNK_TOKENS, max_queries)
    max_keys = max(
        (solution.n_tokens + segments[solution.prompt_index].n_tokens for solution in solutions),
        default=0,
    )
    mask_TS = torch.full((max_queries, max_keys), -torch.inf, dtype=dtype, device=device)
    return mask_TS.triu(max_keys - max_queries + 1)[None, None]


@cache
def _compile(function: Any, device_type: str) -> Any:
    """Compile a function of FlexAttention on GPUs, once for all lengths."""
    return torch.compile(function, dynamic=True) if device_type == "cuda" else function


def tree_attention(
    module: Any,
    query_RHLD: Tensor,
    key_RGLD: Tensor,
    value_RGLD: Tensor,
    attention_mask: Any,
    *,
    scaling: float | None = None,
    tree: Sequence[Segment] | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute attention over a prefix tree, with the signature that transformers expects.

    H, the number of query heads, is a multiple of G, the number of key heads.

    Args:
        module: The attention layer.
        query_RHLD: Queries.
        key_RGLD: Keys.
        value_RGLD: Values.
        attention_mask: The mask of :func:`tree_inputs`.
        scaling: Factor of the scores.
        tree: The segments of :func:`tree_inputs`; None: a batch without a tree.
        options: Further arguments of transformers.

    Returns:
        The outputs, [R, L, H, D], and None in place of the attention weights.

    Raises:
        InputError: if the architecture needs an argument that tree attention does not implement.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if tree is None:
        result: tuple[Tensor, None] = sdpa_attention_forward(
            module,
            query_RHLD,
            key_RGLD,
            value_RGLD,
            attention_mask,
            scaling=scaling,
            **options,
        )
        return result
    for name in _UNSUPPORTED_ATTENTION_ARGUMENTS:
        if options.get(name) is not None:
            raise InputError(
                f"{type(module).__name__} uses {name}, which shared prompts do not support: "
                "expected false.",
                field="share_prompt",
                value=True,
            )
    # Under autocast, norms leave queries and keys in float32.
    query_RHLD = query_RHLD.to(value_RGLD.dtype)
    key_RGLD = key_RGLD.to(value_RGLD.dtype)
    has_grouped_heads = query_RHLD.shape[1] != key_RGLD.shape[1]
    if isinstance(attention_mask, Tensor):
        output_RHLD = _attend_by_segment(
            query_RHLD,
            key_RGLD,
            value_RGLD,
            mask=attention_mask,
            segments=tree,
            scale=scaling,
            enable_gqa=has_grouped_heads,
        )
    else:
        from torch.nn.attention.flex_attention import flex_attention

        flex = _compile(flex_attention, query_RHLD.device.type)
        output_RHLD = flex(
            query_RHLD,
            key_RGLD,
            value_RGLD,
            block_mask=attention_mask,
            scale=scaling,
            enable_gqa=has_grouped_heads,
        )
    return output_RHLD.transpose(1, 2), None


def _attend_by_segment(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor,
    segments: Sequence[Segment],
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    """Compute attention segment by segment; ``mask`` is that of :func:`lower_right_mask`."""
    attend = partial(_attend, scale=scale, enable_gqa=enable_gqa)
    lengths = [segment.n_tokens for segment in segments]
    queries = query.split(lengths, dim=2)
    keys = key.split(lengths, dim=2)
    values = value.split(lengths, dim=2)
    outputs = []
    for index, (_, prompt) in enumerate(segments):
        if index == prompt:
            outputs.append(attend(queries[index], keys[index], values[index], mask=None))
            continue
        visible_key = torch.cat([keys[prompt], keys[index]], dim=2)
        visible_value = torch.cat([values[prompt], values[index]], dim=2)
        n_keys = lengths[prompt]
        for query_chunk in queries[index].split(_QUERY_CHUNK_TOKENS, dim=2):
            n_queries = query_chunk.shape[2]
            n_keys += n_queries
            chunk_mask = mask[:, :, mask.shape[2] - n_queries :, mask.shape[3] - n_keys :]
            chunk_key = visible_key[:, :, :n_keys]
            chunk_value = visible_value[:, :, :n_keys]
            outputs.append(attend(query_chunk, chunk_key, chunk_value, mask=chunk_mask))
    return torch.cat(outputs, dim=2)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None,
    scale: float | None,
    enable_gqa: bool,
) -> Any:
    """Compute attention with a mask; None is a causal mask."""
    is_cpu_bf16 = query.is_cpu and query.dtype == torch.bfloat16
    if is_cpu_bf16 and torch.is_grad_enabled() and query.shape[3] == value.shape[3]:
        scale = scale or query.shape[3] ** -0.5
        return _Bfloat16CpuAttention.apply(query, key, value, mask, scale)
    return scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
        enable_gqa=enable_gqa,
    )


class _Bfloat16CpuAttention(torch.autograd.Function):  # type: ignore[misc]
    """Attention in bfloat16 on a CPU, [R, H, T, D] to [R, G, S, D]; the last query sees all keys.

    The gradient takes two thirds of the time of torch's and has half its error. Scores stay in
    float32. Matrix products with bfloat16 results have bfloat16 inputs.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scale: Any) -> Any:
        """Return the outputs of the queries."""
        output, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query,
            key,
            value,
            dropout_p=0.0,
            is_causal=mask is None,
            attn_mask=mask,
            scale=scale,
        )
        ctx.save_for_backward(query, key, value, output, logsumexp)
        ctx.scale = scale
        return output

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of queries, keys and values."""
        query, key, value, output, logsumexp = ctx.saved_tensors
        n_queries, width = query.shape[2:]
        n_keys = key.shape[2]
        groups = key.shape[:2].numel()
        # N = H / G · T: the query heads of one key head are concatenated.
        query_GND = query.reshape(groups, -1, width)
        output_GND = output.reshape(groups, -1, width)
        upstream_GND = upstream.reshape(groups, -1, width)
        key_GSD = key.reshape(groups, n_keys, width)
        value_GSD = value.reshape(groups, n_keys, width)
        weight_GNS = query_GND.float() @ key_GSD.float().mT
        weight_GNS.mul_(ctx.scale).sub_(logsumexp.reshape(groups, -1, 1)).exp_()
        weight_GNS.view(-1, n_queries, n_keys).tril_(n_keys - n_queries)
        grad_GNS = upstream_GND.float() @ value_GSD.float().mT
        grad_GNS.sub_((upstream_GND.float() * output_GND).sum(-1, keepdim=True))
        grad_GNS.mul_(weight_GNS).mul_(ctx.scale)
        grad_GNS = grad_GNS.to(query.dtype)
        weight_GNS = weight_GNS.to(query.dtype)
        query_grad = (grad_GNS @ key_GSD).view_as(query)
        key_grad = (grad_GNS.mT @ query_GND).view_as(key)
        value_grad = (weight_GNS.mT @ upstream_GND).view_as(value)
        return query_grad, key_grad, value_grad, None, None
