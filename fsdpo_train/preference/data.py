"""The data side of preference training: pairs tokenised, shuffled and batched by prompt."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.step_tokens import StepTokenizer
from fsdpo_train.preference.groups import PromptGroup, collate_groups, scatter_tokens
from fsdpo_train.preference.pairs import PromptPairs
from fsdpo_train.preference.reference_store import ReferenceKey, reference_key


@dataclass(slots=True)
class PreferenceData:
    """Pairs ready to train on."""

    groups: list[PromptGroup]  #: Different solutions of each prompt and the pairs between them.
    keys: list[list[ReferenceKey]]  #: Of reference log-probabilities, in the order of ``groups``.
    #: ``prompts``, ``solutions``, ``pairs``, ``tokens``; ``repeated_pairs``, which were there
    #: already; and what exceeded the context: ``long_solutions`` and the ``long_pairs`` that went
    #: with them.
    counts: Counter[str]

    @property
    def longest(self) -> int:
        """Tokens of the longest solution with its prompt."""
        return max(len(each.input_ids) for group in self.groups for each in group.solutions)


def prepare_pairs(
    prompts: Sequence[PromptPairs], tokenizer: Any, max_length: int, made_by: Mapping[str, str]
) -> PreferenceData:
    """Tokenise solutions; those over ``max_length`` tokens are dropped whole, with their pairs.

    Raises:
        InputError: if a step holds no token, or no pair is left.
    """
    encoder, found = StepTokenizer(tokenizer), PreferenceData([], [], Counter())
    for prompt in prompts:
        encoded = [
            encoder.encode(
                prompt.prompt, each.steps, add_eos=each.ends_with_eos, max_length=max_length
            )
            for each in prompt.solutions
        ]
        fits = [not each.truncated_steps for each in encoded]
        pairs = [(a, b) for a, b in prompt.pairs if fits[a] and fits[b]]
        found.counts["long_solutions"] += fits.count(False)
        found.counts["repeated_pairs"] += prompt.duplicate_pairs
        found.counts["long_pairs"] += len(prompt.pairs) - len(pairs)
        if pairs:
            rewards = [each.rewards for each in prompt.solutions]
            group, kept = _restrict_to_pairs(PromptGroup(encoded, rewards, prompt.pairs), pairs)
            used = (prompt.solutions[index] for index in kept)
            keys = [
                reference_key(made_by, prompt.prompt, each.steps, each.ends_with_eos)
                for each in used
            ]
            found.groups.append(group)
            found.keys.append(keys)
            found.counts["prompts"] += 1
            found.counts["solutions"] += len(kept)
            found.counts["pairs"] += len(pairs)
            found.counts["tokens"] += sum(
                len(e.input_ids) - e.prompt_length for e in group.solutions
            )
    if not found.groups:
        raise InputError(
            f"none of {found.counts['long_pairs']} pairs is left; "
            f"{found.counts['long_solutions']} solutions exceed {max_length} tokens. Raise "
            "max_length, or choose a model with a longer context."
        )
    return found


def _restrict_to_pairs(
    group: PromptGroup, pairs: Sequence[tuple[int, int]]
) -> tuple[PromptGroup, list[int]]:
    """Return the group of some of its pairs, and which solutions they need."""
    kept = sorted({index for pair in pairs for index in pair})
    place = {index: number for number, index in enumerate(kept)}
    solutions, rewards = [group.solutions[i] for i in kept], [group.rewards[i] for i in kept]
    return PromptGroup(solutions, rewards, [(place[a], place[b]) for a, b in pairs]), kept


def training_rows(groups: Sequence[PromptGroup], shuffle: str) -> list[dict[str, Any]]:
    """Return what is shuffled: a prompt with all its pairs, or single pairs.

    Returns:
        Rows of ``group`` (its number), ``pairs`` and ``length`` (tokens it costs).
    """
    return [
        {"group": number, "pairs": pairs, "length": _tokens(group, pairs)}
        for number, group in enumerate(groups)
        for pairs in ([group.pairs] if shuffle == "groups" else [[pair] for pair in group.pairs])
    ]


def _tokens(group: PromptGroup, pairs: Sequence[tuple[int, int]]) -> int:
    used = [group.solutions[index] for index in {index for pair in pairs for index in pair}]
    return used[0].prompt_length + sum(len(each.input_ids) - each.prompt_length for each in used)


@dataclass(frozen=True, slots=True)
class PreferenceCollator:
    """Turns rows of :func:`training_rows` into tensors; pairs of one prompt meet again."""

    groups: Sequence[PromptGroup]
    reference: Sequence[Sequence[np.ndarray]]  #: Log-probabilities, an array per solution.
    share_prompt: bool
    pad: int
    eos: int

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return what :func:`collate_groups` does, and ``reference_ST``."""
        pairs: dict[int, list[tuple[int, int]]] = {}
        for row in rows:
            pairs.setdefault(row["group"], []).extend(row["pairs"])
        pairs = {number: listed for number, listed in pairs.items() if listed} or pairs
        batch: list[PromptGroup] = []
        values: list[np.ndarray] = []
        for number, listed in pairs.items():
            # A filler has no pair, and still something to compute.
            group, kept = _restrict_to_pairs(
                self.groups[number], listed or self.groups[number].pairs[:1]
            )
            batch.append(group if listed else replace(group, pairs=[]))
            values.extend(self.reference[number][index] for index in kept)
        tensors = collate_groups(batch, share_prompt=self.share_prompt, pad=self.pad, eos=self.eos)
        reference_N = torch.from_numpy(np.concatenate(values))
        return tensors | {"reference_ST": scatter_tokens(reference_N, tensors["step_ST"])}
