"""Prefix trees: prompts and solutions in one row, with the positions of their tokens."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad


class Segment(NamedTuple):
    """A prompt, a solution, or a prompt with its only solution, in a row of a prefix tree."""

    n_tokens: int  #: Length of the segment.
    prompt_index: int  #: Index of the prompt among the segments; a prompt has its own index.


class PackedTree(NamedTuple):
    """Solutions that were packed into one row."""

    inputs: dict[str, Tensor]  #: Inputs of a model, see :func:`tree_inputs`.
    position_ST: Tensor  #: Position in the row of each token of the original rows.


def pack_prefix_tree(ids_ST: Tensor, is_solution_ST: Tensor) -> PackedTree:
    """Pack prompts with solutions into one row; neighbours with the same prompt share it.

    ::

        tokens    p p p | a a a a | b b b | q q ...   a solution attends to its prompt and itself
        position  0 1 2 | 3 4 5 6 | 3 4 5 | 0 1 ...   each solution follows the prompt

    Args:
        ids_ST: Token ids of one prompt and one solution per row, with padding.
        is_solution_ST: Whether a token belongs to the solution.
    """
    is_prompt_ST = is_solution_ST.cumsum(1) == 0
    is_equal_ST = ~is_prompt_ST[1:] | (ids_ST[1:] == ids_ST[:-1])
    has_previous_prompt_S = (is_equal_ST & (is_prompt_ST[1:] == is_prompt_ST[:-1])).all(1)
    is_first_S = ~pad(has_previous_prompt_S, (1, 0))
    # The only solution of a prompt forms one segment with the prompt.
    is_only_S = is_first_S & ~pad(has_previous_prompt_S, (0, 1))
    is_packed_ST = is_solution_ST | (is_first_S[:, None] & is_prompt_ST)
    position_ST = (is_packed_ST.flatten().cumsum(0) - 1).view_as(ids_ST)
    first_row_S = is_first_S.nonzero()[is_first_S.cumsum(0) - 1, 0]
    # Two segments per row, the prompt and the solution; some segments are empty.
    is_segment_S2 = torch.stack([is_first_S, ~is_only_S], 1)
    prompt_tokens_S = is_prompt_ST.sum(1) + is_only_S * is_solution_ST.sum(1)
    n_tokens_S2 = torch.stack([prompt_tokens_S, is_solution_ST.sum(1)], 1)
    segment_index_S2 = (is_segment_S2.flatten().cumsum(0) - 1).view(-1, 2)
    prompt_index_S2 = segment_index_S2[first_row_S, :1].expand(-1, 2)
    inputs = {
        "input_ids": ids_ST[is_packed_ST][None],
        "position_ids": is_packed_ST.nonzero()[None, :, 1],
        "tree_2N": torch.stack([n_tokens_S2[is_segment_S2], prompt_index_S2[is_segment_S2]]),
    }
    return PackedTree(inputs, position_ST[first_row_S].where(is_prompt_ST, position_ST))
