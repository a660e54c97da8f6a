"""Masks of prefix trees: for FlexAttention, and for attention segment by segment."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fsdpo_data.engines.prefix_sharing.tree import Segment

FLEX_BLOCK_TOKENS = 128  #: Block size of FlexAttention; rows are padded to a multiple.
#: Tokens of a solution that attend at once. Larger chunks compute more masked scores, smaller
#: chunks have more overhead.
QUERY_CHUNK_TOKENS = 512
#: Longest row for which a [T, T] mask is allocated.
MAX_MASKED_ROW_TOKENS = 4096
ALIGNED_BYTES = 16  #: Alignment of the rows of a mask on a GPU.


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

    create_mask = compile_on_gpu(create_block_mask, segment_L.device.type)
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
    max_queries = min(QUERY_CHUNK_TOKENS, max_queries)
    max_keys = max(
        (solution.n_tokens + segments[solution.prompt_index].n_tokens for solution in solutions),
        default=0,
    )
    mask_TS = torch.full((max_queries, max_keys), -torch.inf, dtype=dtype, device=device)
    return mask_TS.triu(max_keys - max_queries + 1)[None, None]


@cache
def compile_on_gpu(function: Any, device_type: str) -> Any:
    """Compile a function of FlexAttention on GPUs, once for all lengths."""
    return torch.compile(function, dynamic=True) if device_type == "cuda" else function


def aligned_copy(mask: Tensor) -> Tensor:
    """Return a mask whose rows start at multiples of :data:`ALIGNED_BYTES`.

    The memory-efficient kernel of CUDA demands it, and a part of a larger mask may start anywhere.
    """
    n_columns = mask.shape[-1]
    padding = -n_columns % (ALIGNED_BYTES // mask.itemsize)
    rows = mask.new_zeros((*mask.shape[:-1], n_columns + padding))
    rows[..., :n_columns] = mask
    return rows[..., :n_columns]
