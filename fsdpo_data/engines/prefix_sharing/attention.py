"""Attention over prefix trees, as an attention function for transformers.

There are two implementations:

- FlexAttention, on GPUs, skips the blocks of the mask in which no token attends to another.
- Elsewhere FlexAttention would not be compiled and would hold all scores. There, attention is
  computed segment by segment: a prompt by itself, a solution with the keys of its prompt.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.cpu_bf16.attention import Bfloat16CpuAttention
from fsdpo_data.engines.prefix_sharing import masks
from fsdpo_data.engines.prefix_sharing.tree import Segment

#: Arguments of attention functions that tree attention does not implement.
_UNSUPPORTED_ATTENTION_ARGUMENTS = ("softcap", "s_aux", "position_bias")

#: Kernels of attention. The one of cuDNN fails with a part of a larger mask.
_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


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
            module, query_RHLD, key_RGLD, value_RGLD, attention_mask, scaling=scaling, **options
        )
        return result
    _refuse_unsupported_arguments(module, options)
    # Under autocast, norms leave queries and keys in float32.
    query_RHLD = query_RHLD.to(value_RGLD.dtype)
    key_RGLD = key_RGLD.to(value_RGLD.dtype)
    if isinstance(attention_mask, Tensor):
        attend = partial(_attend_by_segment, mask=attention_mask, segments=tree)
    else:
        from torch.nn.attention.flex_attention import flex_attention

        flex = masks.compile_on_gpu(flex_attention, query_RHLD.device.type)
        attend = partial(flex, block_mask=attention_mask)
    has_grouped_heads = query_RHLD.shape[1] != key_RGLD.shape[1]
    output_RHLD = attend(
        query_RHLD, key_RGLD, value_RGLD, scale=scaling, enable_gqa=has_grouped_heads
    )
    return output_RHLD.transpose(1, 2), None


def _refuse_unsupported_arguments(module: Any, options: Mapping[str, Any]) -> None:
    """Raise an InputError if an attention layer needs what tree attention does not implement."""
    for name in _UNSUPPORTED_ATTENTION_ARGUMENTS:
        if options.get(name) is not None:
            raise InputError(
                f"{type(module).__name__} uses {name}, which shared prompts do not support: "
                "expected false.",
                field="share_prompt",
                value=True,
            )


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
    """Compute attention segment by segment; ``mask`` comes from :func:`lower_right_mask`."""
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
        for query_chunk in queries[index].split(masks.QUERY_CHUNK_TOKENS, dim=2):
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
        return Bfloat16CpuAttention.apply(query, key, value, mask, scale)
    if query.is_cuda and mask is not None:
        mask = masks.aligned_copy(mask)
        if enable_gqa:
            # Only the slow kernel supports both a mask and grouped heads.
            n_groups = query.shape[1] // key.shape[1]
            key, value = (tensor.repeat_interleave(n_groups, dim=1) for tensor in (key, value))
            enable_gqa = False
    with sdpa_kernel(_KERNELS):
        return scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=mask is None,
            scale=scale,
            enable_gqa=enable_gqa,
        )
