"""Batching of prompt groups: every different solution is computed once, and so is its prompt.

Name suffixes give the shapes: ``_N`` completion tokens of the batch, ``_S`` solutions, ``_T``
tokens, ``_K`` steps, ``_P`` pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fsdpo_data.engines.step_tokens import PROMPT_STEP_ID, EncodedSolution
from fsdpo_train.trainer.batching import collate_rows, completion_inputs, pad_rows


@dataclass(frozen=True, slots=True)
class PromptGroup:
    """The solutions of one prompt and the pairs between them."""

    solutions: Sequence[EncodedSolution]  #: The different solutions, each encoded with the prompt.
    rewards: Sequence[Sequence[float]]  #: The step rewards of each solution.
    pairs: Sequence[tuple[int, int]]  #: (chosen, rejected) as indices into ``solutions``.


def collate_groups(
    groups: Sequence[PromptGroup], *, share_prompt: bool, pad_id: int, eos_id: int
) -> dict[str, Any]:
    """Collate prompt groups into the tensors of one batch.

    Returns:
        A dict with these entries:

        - ``model_inputs``: see :func:`.batching.completion_inputs`.
        - ``step_ST``, ``is_eos_ST``, ``reward_SK``: see :class:`.loss.SolutionBatch`.
        - ``chosen_P``, ``rejected_P``: the pairs, as indices into the solutions of the batch.
    """
    solutions = [solution for group in groups for solution in group.solutions]
    rows = [
        {"input_ids": solution.input_ids, "n_prompt": solution.prompt_length}
        for solution in solutions
    ]
    batch = collate_rows(rows, pad_id)
    completion_ST = batch["completion_mask"]
    next_is_completion_ST = torch.nn.functional.pad(completion_ST[:, 1:], (0, 1))
    is_last_ST = completion_ST & ~next_is_completion_ST
    chosen_P, rejected_P = _batch_pairs(groups)
    return {
        "model_inputs": completion_inputs(batch, share_prompt),
        "step_ST": pad_rows([solution.step_ids for solution in solutions], PROMPT_STEP_ID),
        "is_eos_ST": is_last_ST & (batch["input_ids"] == eos_id),
        "reward_SK": pad_rows([rewards for group in groups for rewards in group.rewards], 0.0),
        "chosen_P": chosen_P,
        "rejected_P": rejected_P,
    }


def _batch_pairs(groups: Sequence[PromptGroup]) -> tuple[Tensor, Tensor]:
    """Return the chosen and the rejected solution of each pair, as indices into the batch."""
    pairs: list[tuple[int, int]] = []
    first_index = 0
    for group in groups:
        pairs.extend(
            (first_index + chosen, first_index + rejected) for chosen, rejected in group.pairs
        )
        first_index += len(group.solutions)
    chosen_P, rejected_P = torch.tensor(pairs, dtype=torch.long).view(-1, 2).T.contiguous()
    return chosen_P, rejected_P


def scatter_tokens(value_N: Tensor, step_ST: Tensor) -> Tensor:
    """Return a [S, T] tensor with one value per step token and zero elsewhere."""
    return value_N.new_zeros(step_ST.shape).masked_scatter(step_ST > PROMPT_STEP_ID, value_N)
