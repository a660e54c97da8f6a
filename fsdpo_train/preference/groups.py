"""Prompt groups to tensors: each different solution once, its prompt once for all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from fsdpo_data.engines.step_tokens import PROMPT_STEP_ID, EncodedSolution
from fsdpo_train.trainer.batching import completion_inputs, pad_rows, solution_batch


@dataclass(frozen=True, slots=True)
class PromptGroup:
    """The solutions of one prompt and the pairs between them."""

    solutions: Sequence[EncodedSolution]  #: Different solutions of one prompt, encoded with it.
    rewards: Sequence[Sequence[float]]
    pairs: Sequence[tuple[int, int]]  #: (chosen, rejected) as indices into ``solutions``.


def collate_groups(
    groups: Sequence[PromptGroup], *, share_prompt: bool, pad: int, eos: int
) -> dict[str, Any]:
    """Batch prompt groups; each solution keeps at least one step.

    Returns:
        What the model reads, ``read`` (see :func:`.batching.completion_inputs`), the tables of
        :class:`.loss.SolutionBatch`, but for that of the reference, and the pairs, ``chosen_P`` and
        ``rejected_P``, which index them.
    """
    solutions = [each for group in groups for each in group.solutions]
    rows = [{"input_ids": each.input_ids, "n_prompt": each.prompt_length} for each in solutions]
    batch = solution_batch(rows, pad)
    last_ST = batch["own"] & ~torch.nn.functional.pad(batch["own"][:, 1:], (0, 1))
    starts = accumulate((len(group.solutions) for group in groups), initial=0)
    pairs = [
        [at + i, at + j] for at, group in zip(starts, groups, strict=False) for i, j in group.pairs
    ]
    chosen_P, rejected_P = torch.tensor(pairs, dtype=torch.long).view(-1, 2).T.contiguous()
    return {
        "read": completion_inputs(batch, share_prompt),
        "step_ST": pad_rows([each.step_ids for each in solutions], PROMPT_STEP_ID),
        "ends_ST": last_ST & (batch["input_ids"] == eos),
        "reward_SK": pad_rows([each for group in groups for each in group.rewards], 0.0),
        "chosen_P": chosen_P,
        "rejected_P": rejected_P,
    }


def scatter_tokens(value_N: Tensor, step_ST: Tensor) -> Tensor:
    """Return values of the tokens that are in a step as a table, [S, T], zero elsewhere."""
    return value_N.new_zeros(step_ST.shape).masked_scatter(step_ST > PROMPT_STEP_ID, value_N)
