"""Tokenised training data of preference runs, and the collator that batches it by prompt.

Every different solution is computed once, and so is its prompt. Name suffixes give the shapes:
``_N`` completion tokens of the batch, ``_S`` solutions, ``_T`` tokens, ``_K`` steps, ``_P`` pairs.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.step_tokens import PROMPT_STEP_ID, StepTokenizer
from fsdpo_train.losses.preference_losses import SolutionBatch
from fsdpo_train.preference.pairs import PromptGroup
from fsdpo_train.trainer.batching import TrainingRow, collate_tokens, completion_inputs, pad_rows


def tokenize_groups(
    groups: Iterable[PromptGroup],
    tokenizer: Any,
    max_length: int,
    eos_ids: Collection[int],
) -> tuple[list[PromptGroup], Counter[str]]:
    """Tokenise all solutions, and drop those over ``max_length`` tokens with their pairs.

    Args:
        groups: The pairs of each prompt, as text.
        tokenizer: The tokenizer of the policy.
        max_length: Maximum number of tokens of prompt and solution.
        eos_ids: All ids that end a sequence of the policy.

    Returns:
        The groups with tokens, and the numbers of ``prompts``, ``solutions``, ``pairs`` and
        completion ``tokens``. The chosen side has more tokens in ``chosen_longer`` pairs, and fewer
        in ``chosen_shorter`` pairs. Dropped rows: ``repeated_pairs`` are duplicates,
        ``long_solutions`` exceed the context length, and ``long_pairs`` contain such a solution.
        Of the other pairs, ``contradictory_pairs`` prefer the text that an earlier pair rejects.

    Raises:
        InputError: if a step contains no token, or no pair is left.
    """
    step_tokenizer = StepTokenizer(tokenizer, eos_ids)
    counts: Counter[str] = Counter()
    tokenized = [_tokenize_group(group, step_tokenizer, max_length, counts) for group in groups]
    usable_groups = [group for group in tokenized if group.pairs]
    if not usable_groups:
        raise InputError(
            f"none of {counts['long_pairs']} pairs is left; "
            f"{counts['long_solutions']} solutions exceed {max_length} tokens. Raise "
            "max_length, or choose a model with a longer context."
        )
    return usable_groups, counts


def _tokenize_group(
    group: PromptGroup, step_tokenizer: StepTokenizer, max_length: int, counts: Counter[str]
) -> PromptGroup:
    """Return the group with the tokens of its usable pairs, and count used and dropped pairs."""
    solutions = [
        replace(
            solution,
            encoded=step_tokenizer.encode(
                group.prompt, solution.steps, add_eos=solution.ends_with_eos, max_length=max_length
            ),
        )
        for solution in group.solutions
    ]
    fits = [not solution.tokens.truncated_steps for solution in solutions]
    pairs = [
        (chosen, rejected) for chosen, rejected in group.pairs if fits[chosen] and fits[rejected]
    ]
    counts["long_solutions"] += len(fits) - sum(fits)
    counts["repeated_pairs"] += group.duplicate_pairs
    counts["contradictory_pairs"] += group.contradictory_pairs
    counts["long_pairs"] += len(group.pairs) - len(pairs)
    usable_group = replace(group, solutions=solutions).restrict_to_pairs(pairs)
    if pairs:
        counts["prompts"] += 1
        counts["solutions"] += len(usable_group.solutions)
        counts["pairs"] += len(pairs)
        lengths = [solution.tokens.completion_length for solution in solutions]
        counts["tokens"] += sum(
            solution.tokens.completion_length for solution in usable_group.solutions
        )
        counts["chosen_longer"] += sum(lengths[i] > lengths[j] for i, j in pairs)
        counts["chosen_shorter"] += sum(lengths[i] < lengths[j] for i, j in pairs)
    return usable_group


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow(TrainingRow):
    """Pairs of one prompt, which stay together when the rows are shuffled."""

    group: int  #: Index of the prompt group.
    pairs: Sequence[tuple[int, int]]  #: The pairs; none for a padding row.

    def without_loss(self) -> Self:
        """Return the row without pairs."""
        return replace(self, pairs=())


def training_rows(groups: Sequence[PromptGroup], shuffle: str) -> list[PairRow]:
    """Return the rows that the trainer shuffles: one per prompt, or one per pair.

    Args:
        groups: The prompt groups.
        shuffle: ``groups`` for one row per prompt, ``pairs`` for one row per pair.
    """
    rows = []
    for index, group in enumerate(groups):
        row_pairs = [group.pairs] if shuffle == "groups" else [[pair] for pair in group.pairs]
        for pairs in row_pairs:
            rows.append(PairRow(group=index, pairs=pairs, length=_row_length(group, pairs)))
    return rows


def _row_length(group: PromptGroup, pairs: Sequence[tuple[int, int]]) -> int:
    """Return the number of tokens of the prompt and of all different solutions in ``pairs``."""
    indices = {index for pair in pairs for index in pair}
    tokens = [group.solutions[index].tokens for index in indices]
    return tokens[0].completion_start + sum(solution.completion_length for solution in tokens)


@dataclass(frozen=True, slots=True)
class PreferenceCollator:
    """Collator of the rows of :func:`training_rows`, which joins the pairs of one prompt."""

    groups: Sequence[PromptGroup]  #: All prompt groups of the run, with their reference.
    share_prompt: bool  #: Whether the model computes each prompt once for its solutions.
    pad_id: int  #: Token id of padding.

    def __call__(self, rows: Sequence[PairRow]) -> dict[str, Any]:
        """Return the ``model_inputs`` of the batch, and its ``solutions``."""
        batch: list[PromptGroup] = []
        for group_index, pairs in _pairs_by_group(rows).items():
            # A padding row has no pair. One pair of its group still runs through the model.
            model_pairs = pairs or self.groups[group_index].pairs[:1]
            group = self.groups[group_index].restrict_to_pairs(model_pairs)
            batch.append(group if pairs else replace(group, pairs=[]))
        return {
            "model_inputs": group_inputs(batch, share_prompt=self.share_prompt, pad_id=self.pad_id),
            "solutions": collate_groups(batch),
        }


def _pairs_by_group(rows: Sequence[PairRow]) -> dict[int, list[tuple[int, int]]]:
    """Return the pairs of each group index; padding rows count only if all rows are padding."""
    pairs: dict[int, list[tuple[int, int]]] = {}
    for row in rows:
        pairs.setdefault(row.group, []).extend(row.pairs)
    nonempty = {
        group_index: group_pairs for group_index, group_pairs in pairs.items() if group_pairs
    }
    return nonempty or pairs


def group_inputs(
    groups: Sequence[PromptGroup], *, share_prompt: bool, pad_id: int
) -> dict[str, Tensor]:
    """Return the inputs of the model for all solutions; see :func:`.batching.completion_inputs`."""
    tokens = [solution.tokens for group in groups for solution in group.solutions]
    return completion_inputs(collate_tokens(tokens, pad_id), share_prompt)


def collate_groups(groups: Sequence[PromptGroup]) -> SolutionBatch:
    """Collate prompt groups into one batch. Groups without a reference get zeros."""
    solutions = [solution for group in groups for solution in group.solutions]
    step_ST = pad_rows([solution.tokens.step_ids for solution in solutions], PROMPT_STEP_ID)
    is_completion_ST = step_ST > PROMPT_STEP_ID
    next_is_completion_ST = torch.nn.functional.pad(is_completion_ST[:, 1:], (0, 1))
    ends_with_eos_S = torch.tensor([solution.ends_with_eos for solution in solutions])
    is_last_ST = is_completion_ST & ~next_is_completion_ST
    reference = [solution.reference for solution in solutions if solution.reference is not None]
    reference_ST = torch.zeros(step_ST.shape)
    if reference:
        reference_ST = scatter_tokens(torch.from_numpy(np.concatenate(reference)), step_ST)
    chosen_P, rejected_P = _batch_pairs(groups)
    return SolutionBatch(
        reference_ST=reference_ST,
        step_ST=step_ST,
        is_eos_ST=is_last_ST & ends_with_eos_S[:, None],
        reward_SK=pad_rows([solution.rewards for solution in solutions], 0.0),
        chosen_P=chosen_P,
        rejected_P=rejected_P,
    )


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
