"""Tokenised training data of preference runs, and the collator that batches it by prompt."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.step_tokens import EncodedSolution, StepTokenizer
from fsdpo_train.preference.groups import PromptGroup, collate_groups, scatter_tokens
from fsdpo_train.preference.pairs import PromptPairs
from fsdpo_train.preference.reference_store import ReferenceKey, reference_key


@dataclass(slots=True)
class PreferenceData:
    """Tokenised preference pairs, grouped by prompt."""

    groups: list[PromptGroup]  #: The different solutions of each prompt, and their pairs.
    keys: list[list[ReferenceKey]]  #: Reference store keys, one per solution, as in ``groups``.
    #: Numbers of ``prompts``, ``solutions``, ``pairs`` and completion ``tokens``. Dropped rows:
    #: ``repeated_pairs`` are duplicates, ``long_solutions`` exceed the context length, and
    #: ``long_pairs`` contain such a solution.
    counts: Counter[str]

    @property
    def max_sequence_length(self) -> int:
        """Number of tokens of the longest solution, prompt included."""
        return max(len(solution.input_ids) for group in self.groups for solution in group.solutions)


def prepare_pairs(
    prompts: Sequence[PromptPairs], tokenizer: Any, max_length: int, fingerprint: Mapping[str, str]
) -> PreferenceData:
    """Tokenise all solutions, and drop those over ``max_length`` tokens with their pairs.

    Args:
        prompts: The pairs of each prompt.
        tokenizer: The tokenizer of the policy.
        max_length: Maximum number of tokens of prompt and solution.
        fingerprint: Identifies the reference model, see
            :func:`~fsdpo_train.preference.reference.reference_fingerprint`.

    Raises:
        InputError: if a step contains no token, or no pair is left.
    """
    step_tokenizer = StepTokenizer(tokenizer)
    data = PreferenceData(groups=[], keys=[], counts=Counter())
    for prompt in prompts:
        _add_prompt(data, prompt, step_tokenizer, max_length=max_length, fingerprint=fingerprint)
    if not data.groups:
        raise InputError(
            f"none of {data.counts['long_pairs']} pairs is left; "
            f"{data.counts['long_solutions']} solutions exceed {max_length} tokens. Raise "
            "max_length, or choose a model with a longer context."
        )
    return data


def _add_prompt(
    data: PreferenceData,
    prompt: PromptPairs,
    step_tokenizer: StepTokenizer,
    *,
    max_length: int,
    fingerprint: Mapping[str, str],
) -> None:
    """Tokenise the solutions of a prompt, and add them to ``data`` with the usable pairs."""
    encoded = [
        step_tokenizer.encode(
            prompt.prompt, side.steps, add_eos=side.ends_with_eos, max_length=max_length
        )
        for side in prompt.solutions
    ]
    fits = [not solution.truncated_steps for solution in encoded]
    pairs = [
        (chosen, rejected) for chosen, rejected in prompt.pairs if fits[chosen] and fits[rejected]
    ]
    data.counts["long_solutions"] += len(fits) - sum(fits)
    data.counts["repeated_pairs"] += prompt.duplicate_pairs
    data.counts["long_pairs"] += len(prompt.pairs) - len(pairs)
    if not pairs:
        return
    rewards = [side.rewards for side in prompt.solutions]
    group, solution_indices = _restrict_to_pairs(PromptGroup(encoded, rewards, prompt.pairs), pairs)
    sides = [prompt.solutions[index] for index in solution_indices]
    data.groups.append(group)
    data.keys.append(
        [
            reference_key(fingerprint, prompt.prompt, side.steps, ends_with_eos=side.ends_with_eos)
            for side in sides
        ]
    )
    data.counts["prompts"] += 1
    data.counts["solutions"] += len(sides)
    data.counts["pairs"] += len(pairs)
    data.counts["tokens"] += sum(map(completion_length, group.solutions))


def completion_length(solution: EncodedSolution) -> int:
    """Return the number of tokens after the prompt."""
    return len(solution.input_ids) - solution.prompt_length


def _restrict_to_pairs(
    group: PromptGroup, pairs: Sequence[tuple[int, int]]
) -> tuple[PromptGroup, list[int]]:
    """Return a group with only ``pairs`` and their solutions, and the old solution indices."""
    old_indices = sorted({index for pair in pairs for index in pair})
    new_index = {old: new for new, old in enumerate(old_indices)}
    restricted = PromptGroup(
        solutions=[group.solutions[index] for index in old_indices],
        rewards=[group.rewards[index] for index in old_indices],
        pairs=[(new_index[chosen], new_index[rejected]) for chosen, rejected in pairs],
    )
    return restricted, old_indices


def training_rows(groups: Sequence[PromptGroup], shuffle: str) -> list[dict[str, Any]]:
    """Return the rows that the trainer shuffles: one per prompt, or one per pair.

    Args:
        groups: The prompt groups.
        shuffle: ``groups`` for one row per prompt, ``pairs`` for one row per pair.

    Returns:
        Rows with ``group`` (the index of the group), ``pairs`` and ``length`` (in tokens).
    """
    rows = []
    for index, group in enumerate(groups):
        row_pairs = [group.pairs] if shuffle == "groups" else [[pair] for pair in group.pairs]
        for pairs in row_pairs:
            rows.append({"group": index, "pairs": pairs, "length": _row_length(group, pairs)})
    return rows


def _row_length(group: PromptGroup, pairs: Sequence[tuple[int, int]]) -> int:
    """Return the number of tokens of the prompt and of all different solutions in ``pairs``."""
    indices = {index for pair in pairs for index in pair}
    solutions = [group.solutions[index] for index in indices]
    return solutions[0].prompt_length + sum(map(completion_length, solutions))


@dataclass(frozen=True, slots=True)
class PreferenceCollator:
    """Collator of the rows of :func:`training_rows`, which joins the pairs of one prompt."""

    groups: Sequence[PromptGroup]  #: All prompt groups of the run.
    #: Reference log-probabilities of each group, with one array per solution.
    reference_logprobs: Sequence[Sequence[np.ndarray]]
    share_prompt: bool  #: Whether the model computes each prompt once for its solutions.
    pad_id: int  #: Token id of padding.
    eos_id: int  #: Token id of the end-of-sequence token.

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the tensors of :func:`collate_groups`, and ``reference_ST``."""
        batch: list[PromptGroup] = []
        reference_arrays: list[np.ndarray] = []
        for group_index, pairs in _pairs_by_group(rows).items():
            # A padding row has no pair. One pair of its group still runs through the model.
            model_pairs = pairs or self.groups[group_index].pairs[:1]
            group, solution_indices = _restrict_to_pairs(self.groups[group_index], model_pairs)
            batch.append(group if pairs else replace(group, pairs=[]))
            group_arrays = self.reference_logprobs[group_index]
            reference_arrays.extend(group_arrays[index] for index in solution_indices)
        tensors = collate_groups(
            batch, share_prompt=self.share_prompt, pad_id=self.pad_id, eos_id=self.eos_id
        )
        reference_N = torch.from_numpy(np.concatenate(reference_arrays))
        return tensors | {"reference_ST": scatter_tokens(reference_N, tensors["step_ST"])}


def _pairs_by_group(rows: Sequence[Mapping[str, Any]]) -> dict[int, list[tuple[int, int]]]:
    """Return the pairs of each group index; padding rows count only if all rows are padding."""
    pairs: dict[int, list[tuple[int, int]]] = {}
    for row in rows:
        pairs.setdefault(row["group"], []).extend(row["pairs"])
    nonempty = {
        group_index: group_pairs for group_index, group_pairs in pairs.items() if group_pairs
    }
    return nonempty or pairs
