"""Scoring with a process reward model through transformers.

Batches contain solutions of similar length, so they need little padding. The prompt of a problem is
computed once for all its solutions: their forward passes start from its keys and values.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from fsdpo_data.engines.prefix_sharing import probe
from fsdpo_data.engines.prefix_sharing.masks import MAX_MASKED_ROW_TOKENS
from fsdpo_data.engines.prefix_sharing.probe import (
    PROBE_PROMPT_TOKENS,
    PROBE_SOLUTION_TOKENS,
)
from fsdpo_data.engines.samplers.tokenization import pad_sequences
from fsdpo_data.engines.scorers import ScoreResult
from fsdpo_data.engines.scorers.token_scorer import TransformersScorer, length_batches
from fsdpo_data.engines.step_tokens import EncodedSolution

MAX_CACHED_PROMPTS = 32  #: Maximum number of prompts whose keys and values are in memory.


class PrmScorer(TransformersScorer):
    """Scorer for ``AutoModelForTokenClassification`` that computes each prompt once."""

    auto_class = "AutoModelForTokenClassification"
    expected = "a directory that `fsdpo-train prm` wrote"

    def _score_encoded(self, encoded: dict[int, EncodedSolution]) -> Iterator[ScoreResult]:
        for batch, logits in self._compute_batches(encoded):
            for index, rewards in zip(batch, self._activate(logits).tolist(), strict=True):
                yield index, rewards[: len(encoded[index].score_positions)]

    def _compute_step_logits(
        self, score_positions: Sequence[Sequence[int]], **inputs: Any
    ) -> Tensor:
        """Run the model; return the logits of the steps, [B, K].

        Subclasses for published PRMs return [B, K, C] for C classes.
        """
        return gather_steps(self._net(**inputs).logits, score_positions)[..., 0].float()

    def _activate(self, logits: Tensor) -> Tensor:
        """Return the rewards [B, K] of the logits."""
        return logits.sigmoid()

    @cached_property
    def _can_share_prompts(self) -> bool:
        """Whether a shared prompt gives the same logits, by a test with two random solutions.

        Every token of the two solutions is a step.
        """
        if probe.attention_window(self._net.config):
            return False  # a sliding window drops keys that other solutions still need
        probe_length = PROBE_PROMPT_TOKENS + PROBE_SOLUTION_TOKENS
        probes = [
            EncodedSolution(
                input_ids=np.array(input_ids, np.int32),
                prompt_length=PROBE_PROMPT_TOKENS,
                score_positions=list(range(PROBE_PROMPT_TOKENS, probe_length)),
                n_steps=PROBE_SOLUTION_TOKENS,
            )
            for input_ids in probe.probe_ids(self._net)
        ]

        def compute_with_shared_prompt() -> Tensor:
            batches = self._compute_with_shared_prompts([[0, 1]], dict(enumerate(probes)))
            return torch.cat([logits for _, logits in batches])

        return probe.matches_unshared(
            self._net, lambda: self._compute_logits(probes), compute_with_shared_prompt
        )

    def _compute_batches(
        self, encoded: dict[int, EncodedSolution]
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Yield the indices of each batch and the logits of their steps, [B, K]."""
        if self._can_share_prompts:
            groups, ungrouped = _group_by_prompt(encoded)
        else:
            groups = []
            ungrouped = list(encoded)
        for start in range(0, len(groups), MAX_CACHED_PROMPTS):
            cached_groups = groups[start : start + MAX_CACHED_PROMPTS]
            yield from self._compute_with_shared_prompts(cached_groups, encoded)
        lengths = {index: len(encoded[index].input_ids) for index in ungrouped}
        for batch in length_batches(lengths, self._batch_tokens):
            yield batch, self._compute_logits([encoded[index] for index in batch])

    def _compute_logits(self, batch: Sequence[EncodedSolution]) -> Tensor:
        """Return the logits of the steps from complete sequences, padded on the right."""
        sequences = [solution.input_ids for solution in batch]
        ids, mask = pad_sequences(sequences, self._pad, self._device)
        score_positions = [solution.score_positions for solution in batch]
        return self._compute_step_logits(
            score_positions, input_ids=ids, attention_mask=mask, use_cache=False
        )

    def _compute_with_shared_prompts(
        self, groups: Sequence[Sequence[int]], encoded: dict[int, EncodedSolution]
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Run each prompt once, then its solutions from its keys and values.

        Args:
            groups: The indices of the solutions of each prompt.
            encoded: The solutions by index.

        Yields:
            The indices of each batch and the logits of their steps, [B, K].
        """
        first_solutions = [encoded[group[0]] for group in groups]
        prompts = [solution.input_ids[: solution.prompt_length] for solution in first_solutions]
        prompt_ids, prompt_mask = pad_sequences(prompts, self._pad, self._device, pad_left=True)
        prompt_cache = self._net.base_model(
            input_ids=prompt_ids,
            attention_mask=prompt_mask,
            position_ids=(prompt_mask.cumsum(-1) - 1).clamp_min(0),
            use_cache=True,
        ).past_key_values
        prompt_row = {index: row for row, group in enumerate(groups) for index in group}
        lengths = {
            index: len(encoded[index].input_ids) - encoded[index].prompt_length
            for index in prompt_row
        }
        for batch in length_batches(lengths, self._batch_tokens):
            rows = torch.tensor([prompt_row[index] for index in batch], device=self._device)
            # Every batch has a cache of its own, because a forward pass appends to its cache.
            batch_cache = DynamicCache(config=self._net.config)
            for layer_index, layer in enumerate(prompt_cache.layers):
                batch_cache.update(layer.keys[rows], layer.values[rows], layer_index)
            solution_ids = []
            score_positions = []
            for index in batch:
                solution = encoded[index]
                prompt_length = solution.prompt_length
                solution_ids.append(solution.input_ids[prompt_length:])
                score_positions.append(
                    [position - prompt_length for position in solution.score_positions]
                )
            ids, solution_mask = pad_sequences(solution_ids, self._pad, self._device)
            mask = torch.cat([prompt_mask[rows], solution_mask], dim=1)
            logits = self._compute_step_logits(
                score_positions,
                input_ids=ids,
                attention_mask=mask,
                position_ids=(mask.cumsum(-1) - 1)[:, -ids.shape[1] :],
                past_key_values=batch_cache,
                use_cache=True,
            )
            yield batch, logits


def gather_steps(value_BTC: Tensor, score_positions: Sequence[Sequence[int]]) -> Tensor:
    """Return the values at the score positions, [B, K, C]; later entries are padding."""
    position_BK, _ = pad_sequences(score_positions, 0, value_BTC.device)
    row_B1 = torch.arange(len(score_positions), device=position_BK.device)[:, None]
    return value_BTC[row_B1, position_BK]


def _group_by_prompt(encoded: dict[int, EncodedSolution]) -> tuple[list[list[int]], list[int]]:
    """Group solutions by prompt.

    Returns:
        The groups of two or more solutions, shortest prompts first to save padding, and all other
        solutions. Solutions that are too long for a masked row are never in a group.
    """
    ungrouped: list[int] = []
    indices_by_prompt: dict[bytes, list[int]] = {}
    for index, solution in encoded.items():
        if solution.prompt_length and len(solution.input_ids) <= MAX_MASKED_ROW_TOKENS:
            prompt = solution.input_ids[: solution.prompt_length].tobytes()
            indices_by_prompt.setdefault(prompt, []).append(index)
        else:
            ungrouped.append(index)
    groups = []
    for indices in indices_by_prompt.values():
        if len(indices) > 1:
            groups.append(indices)
        else:
            ungrouped.append(indices[0])
    groups.sort(key=lambda group: encoded[group[0]].prompt_length)
    return groups, ungrouped
