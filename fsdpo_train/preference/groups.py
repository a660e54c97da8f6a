"""Prompt groups to tensors: each different solution once, its prompt once for all of them.

One row per group (``share_prompt``)::

    tokens    p p p | a a a a | b b b     a token sees its prompt and its own solution
    position  0 1 2 | 3 4 5 6 | 3 4 5     each solution follows the prompt

or one row per solution, for models that share nothing. Either way each completion token
is listed with the place whose hidden state predicts it, so that everything behind the model is
the same code.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate, chain
from typing import Any

import torch
from torch import Tensor

from fsdpo_data.engines.step_tokens import PROMPT, Encoded
from fsdpo_train.trainer.batching import padded, row_mask


@dataclass(frozen=True, slots=True)
class Group:
    """The solutions of one prompt and the pairs between them."""

    solutions: Sequence[Encoded]  #: Different solutions of one prompt, encoded with it.
    rewards: Sequence[Sequence[float]]
    pairs: Sequence[tuple[int, int]]  #: (chosen, rejected) as indices into ``solutions``.


@dataclass(frozen=True, slots=True)
class GroupBatch:
    """Prompt groups as tensors; N completion tokens of S solutions in R rows of L tokens."""

    input_ids_RL: Tensor
    position_ids_RL: Tensor  #: Positions, restarted for each solution.
    #: [R, L] of ones and zeros; if the prompt is shared, additive [S, 1, T, P + T]: what the tokens
    #: of a solution see of its prompt and of each other.
    attention_mask: Tensor
    source_N: Tensor  #: Place, in the flattened rows, whose hidden state predicts each token.
    target_N: Tensor
    cell_N: Tensor  #: Where each goes in the flattened [S, T] tables.
    step_ST: Tensor  #: Step of each completion token, -1 at padding.
    ends_ST: Tensor  #: Whether it is the end-of-sequence token.
    reward_SK: Tensor  #: Step rewards, zero-padded.
    chosen_P: Tensor  #: Index of each pair's preferred solution among the S.
    rejected_P: Tensor
    #: If the prompt is shared, ``branch_ST``, ``row_S`` and ``place_RL`` of
    #: :func:`fsdpo_data.engines.sharing.tree_attention`.
    tree: dict[str, Tensor] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def collate_groups(
    groups: Sequence[Group], *, share_prompt: bool, pad: int, eos: int, dtype: torch.dtype
) -> GroupBatch:
    """Batch prompt groups.

    Each solution keeps at least one step; ``dtype`` is that of the attention scores, and the
    mask's.
    """
    solutions = [each for group in groups for each in group.solutions]
    shared = [group.solutions for group in groups] if share_prompt else [[s] for s in solutions]
    ids, positions, sources = zip(*map(_row, shared), strict=True)
    width = max(map(len, ids))
    completions = [each.ids[each.n_prompt :] for each in solutions]
    lengths = list(map(len, completions))
    shape = len(solutions), max(lengths)
    target_N = torch.tensor(list(chain(*completions)))
    step_N = torch.tensor(list(chain(*(each.step_of[each.n_prompt :] for each in solutions))))
    cell_N = torch.tensor([s * shape[1] + t for s, n in enumerate(lengths) for t in range(n)])
    last_ST = torch.arange(shape[1]) == torch.tensor(lengths)[:, None] - 1
    starts = accumulate((len(group.solutions) for group in groups), initial=0)
    pairs = [
        [at + i, at + j] for at, group in zip(starts, groups, strict=False) for i, j in group.pairs
    ]
    chosen_P, rejected_P = torch.tensor(pairs, dtype=torch.long).view(-1, 2).T.contiguous()
    places = [row * width + at for row, each in enumerate(sources) for at in each]
    plain = None if share_prompt else row_mask(ids)
    return GroupBatch(
        input_ids_RL=padded(ids, pad),
        position_ids_RL=padded(positions, 0),
        attention_mask=_branch_mask(groups, shape[1], dtype) if plain is None else plain,
        source_N=torch.tensor(places),
        target_N=target_N,
        cell_N=cell_N,
        step_ST=to_table(step_N - PROMPT, cell_N, shape) + PROMPT,
        ends_ST=last_ST & to_table(target_N == eos, cell_N, shape),
        reward_SK=padded([each for group in groups for each in group.rewards], 0.0),
        chosen_P=chosen_P,
        rejected_P=rejected_P,
        tree=_tree(groups, width, shape[1]) if share_prompt else {},
    )


def to_table(value_N: Tensor, cell_N: Tensor, shape: Sequence[int]) -> Tensor:
    """Return values of completion tokens as a table of ``shape`` [S, T], zero at padding.

    ``cell_N`` says where each goes in the flattened table.
    """
    empty = value_N.new_zeros(math.prod(shape))
    return empty.scatter(0, cell_N, value_N).view(*shape)


def _row(solutions: Sequence[Encoded]) -> tuple[list[int], list[int], list[int]]:
    """Return ids, positions and predicting places of a prompt with its solutions behind it."""
    n_prompt = solutions[0].n_prompt
    ids, positions = solutions[0].ids[:n_prompt], list(range(n_prompt))
    sources: list[int] = []
    for solution in solutions:
        start, completion = len(ids), solution.ids[n_prompt:]
        # The prompt's last token predicts the first of every solution.
        sources += [n_prompt - 1, *range(start, start + len(completion) - 1)]
        positions += range(n_prompt, n_prompt + len(completion))
        ids += completion
    return ids, positions, sources


def _branch_mask(groups: Sequence[Group], longest: int, dtype: torch.dtype) -> Tensor:
    """Return the additive mask, [S, 1, T, P + T]: 0 where a token may look, the least number else.

    What stands behind the end of a solution sees it, and is not seen; it means nothing.
    """
    n_prompt_S = torch.tensor([each.n_prompt for group in groups for each in group.solutions])
    width = int(n_prompt_S.max())
    prompt_SP = torch.arange(width) < n_prompt_S[:, None]
    own_TT = torch.ones(longest, longest, dtype=torch.bool).tril()
    sees_prompt = prompt_SP[:, None].expand(-1, longest, -1)
    seen = torch.cat([sees_prompt, own_TT.expand(len(n_prompt_S), -1, -1)], dim=-1)
    least = torch.finfo(dtype).min
    return torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, least)[:, None]


def _tree(groups: Sequence[Group], width: int, longest: int) -> dict[str, Tensor]:
    """Return where attention finds the tokens of each solution, and where rows find their outputs.

    A group is a row of ``width`` tokens; ``longest`` are those of the longest solution.
    """
    prompts = [group.solutions[0].n_prompt for group in groups]
    place_RL = torch.zeros(len(groups), width, dtype=torch.long)  # padding finds anything
    branches: list[Tensor] = []
    rows: list[int] = []
    for row, (group, start) in enumerate(zip(groups, prompts, strict=True)):
        place_RL[row, :start] = row * max(prompts) + torch.arange(start)
        for solution in group.solutions:
            length = len(solution.ids) - prompts[row]
            first = len(groups) * max(prompts) + len(branches) * longest
            place_RL[row, start : start + length] = first + torch.arange(length)
            inside = torch.arange(longest).clamp(max=max(length - 1, 0))
            branches.append(row * width + start + inside)
            rows.append(row)
            start += length
    branch_ST, row_S = torch.stack(branches), torch.tensor(rows)
    return {"branch_ST": branch_ST, "row_S": row_S, "place_RL": place_RL}
