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

    #: Inputs of a model: ``input_ids`` and ``position_ids``, [1, tokens], and ``tree_2N`` with the
    #: length and the prompt of each :class:`Segment`.
    inputs: dict[str, Tensor]
    #: Position in the packed row of each token of the original rows. A repeated prompt has the
    #: positions of its first copy.
    position_ST: Tensor


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
    is_first_S = ~_repeats_prompt(ids_ST, is_prompt_ST)
    # The row has all solutions, and the first copy of each prompt.
    is_packed_ST = is_solution_ST | (is_first_S[:, None] & is_prompt_ST)
    position_ST = (is_packed_ST.flatten().cumsum(0) - 1).view_as(ids_ST)
    first_copy_S = is_first_S.nonzero()[is_first_S.cumsum(0) - 1, 0]
    inputs = {
        "input_ids": ids_ST[is_packed_ST][None],
        "position_ids": is_packed_ST.nonzero()[None, :, 1],
        "tree_2N": _list_segments(
            is_prompt_ST.sum(1), is_solution_ST.sum(1), is_first_S, first_copy_S
        ),
    }
    return PackedTree(inputs, position_ST[first_copy_S].where(is_prompt_ST, position_ST))


def _repeats_prompt(ids_ST: Tensor, is_prompt_ST: Tensor) -> Tensor:
    """Return whether each row has the prompt of the row before it."""
    is_same_token_ST = ~is_prompt_ST[1:] | (ids_ST[1:] == ids_ST[:-1])
    is_same_length_ST = is_prompt_ST[1:] == is_prompt_ST[:-1]
    return pad((is_same_token_ST & is_same_length_ST).all(1), (1, 0))


def _list_segments(
    prompt_tokens_S: Tensor, solution_tokens_S: Tensor, is_first_S: Tensor, first_copy_S: Tensor
) -> Tensor:
    """Return the segments of the packed row, [2, N]: their lengths, and the indices of prompts.

    Args:
        prompt_tokens_S: Length of the prompt of each row.
        solution_tokens_S: Length of the solution of each row.
        is_first_S: Whether the row has the first copy of its prompt.
        first_copy_S: The row with the first copy of the prompt of each row.
    """
    # The only solution of a prompt forms one segment with the prompt.
    is_next_first_S = pad(is_first_S[1:], (0, 1), value=True)
    is_only_S = is_first_S & is_next_first_S
    # Each row may have two segments: its prompt and its solution.
    has_segment_S2 = torch.stack([is_first_S, ~is_only_S], 1)
    first_tokens_S = prompt_tokens_S + is_only_S * solution_tokens_S
    n_tokens_S2 = torch.stack([first_tokens_S, solution_tokens_S], 1)
    segment_index_S2 = (has_segment_S2.flatten().cumsum(0) - 1).view(-1, 2)
    prompt_index_S2 = segment_index_S2[first_copy_S, :1].expand(-1, 2)
    return torch.stack([n_tokens_S2[has_segment_S2], prompt_index_S2[has_segment_S2]])
