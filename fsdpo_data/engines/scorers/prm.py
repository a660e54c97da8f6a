"""Scoring with a process reward model through transformers: one forward per solution.

Solutions are batched by length, so that little is padding, and the prompt of a problem is computed
once for all its solutions: their forward passes start from its keys and values.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from fsdpo_data.engines import prefix_sharing
from fsdpo_data.engines.prefix_sharing import (
    MAX_MASKED_ROW_TOKENS,
    PROBE_PROMPT_TOKENS,
    PROBE_SOLUTION_TOKENS,
)
from fsdpo_data.engines.samplers.tokenization import pad_sequences
from fsdpo_data.engines.scorers.token_scorer import TransformersScorer, length_batches
from fsdpo_data.engines.step_tokens import PROMPT_STEP_ID, EncodedSolution

MAX_CACHED_PROMPTS = 32  #: Prompts whose keys and values are held at a time.


class PrmScorer(TransformersScorer):
    """Scores with ``AutoModelForTokenClassification``; solutions of one prompt share it."""

    auto_class = "AutoModelForTokenClassification"
    expected = "a directory that `fsdpo-train prm` wrote"

    def _rewards(self, encoded: dict[int, EncodedSolution]) -> Iterator[tuple[int, list[float]]]:
        for batch, logits in self._batches(encoded):
            for index, row in zip(batch, self._activate(logits).tolist(), strict=True):
                yield index, row[: len(encoded[index].score_positions)]

    def _read(self, score_positions: Sequence[Sequence[int]], **inputs: Any) -> Tensor:
        """Run the model; return the logits of steps, [B, K], or [B, K, C] of C classes."""
        return gather_steps(self._net(**inputs).logits, score_positions)[..., 0].float()

    def _activate(self, logits: Tensor) -> Tensor:
        """Return the rewards, [B, K]."""
        return logits.sigmoid()

    @cached_property
    def _can_share_prompts(self) -> bool:
        """Try it on two solutions of one prompt, each token of theirs a step."""
        if prefix_sharing.attention_window(self._net.config):
            return False  # keys that a window has already dropped cannot be shared
        ends = range(PROBE_PROMPT_TOKENS, PROBE_PROMPT_TOKENS + PROBE_SOLUTION_TOKENS)
        steps = [*[PROMPT_STEP_ID] * PROBE_PROMPT_TOKENS, *range(PROBE_SOLUTION_TOKENS)]
        both = [
            EncodedSolution(ids, steps, list(ends), PROBE_SOLUTION_TOKENS)
            for ids in prefix_sharing.probe_ids(self._net)
        ]
        return prefix_sharing.matches_unshared(
            self._net,
            lambda: self._compute_logits(both),
            lambda: torch.cat(
                [
                    rows
                    for _, rows in self._score_with_shared_prompts([[0, 1]], dict(enumerate(both)))
                ]
            ),
        )

    def _batches(self, encoded: dict[int, EncodedSolution]) -> Iterator[tuple[list[int], Tensor]]:
        """Yield the items of each batch and the logits of their steps [B, K]."""
        shared, alone = (
            _group_by_prompt(encoded) if self._can_share_prompts else ([], list(encoded))
        )
        for start in range(0, len(shared), MAX_CACHED_PROMPTS):
            groups = shared[start : start + MAX_CACHED_PROMPTS]
            yield from self._score_with_shared_prompts(groups, encoded)
        lengths = {index: len(encoded[index].input_ids) for index in alone}
        for batch in length_batches(lengths, self._batch_tokens):
            yield batch, self._compute_logits([encoded[index] for index in batch])

    def _compute_logits(self, batch: Sequence[EncodedSolution]) -> Tensor:
        """Run whole sequences, padded on the right."""
        ids, mask = pad_sequences([each.input_ids for each in batch], self._pad, self._device)
        score_positions = [each.score_positions for each in batch]
        return self._read(score_positions, input_ids=ids, attention_mask=mask, use_cache=False)

    def _score_with_shared_prompts(
        self, groups: Sequence[Sequence[int]], encoded: dict[int, EncodedSolution]
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Run each prompt once, then its solutions from its keys and values."""
        firsts = [encoded[group[0]] for group in groups]
        prompts = [each.input_ids[: each.prompt_length] for each in firsts]
        ids, prompt_mask = pad_sequences(prompts, self._pad, self._device, pad_left=True)
        positions = (prompt_mask.cumsum(-1) - 1).clamp_min(0)
        cache = self._net.base_model(
            input_ids=ids, attention_mask=prompt_mask, position_ids=positions, use_cache=True
        ).past_key_values
        row_of = {index: row for row, group in enumerate(groups) for index in group}
        lengths = {
            index: len(encoded[index].input_ids) - encoded[index].prompt_length for index in row_of
        }
        for batch in length_batches(lengths, self._batch_tokens):
            rows = torch.tensor([row_of[index] for index in batch], device=self._device)
            own = DynamicCache(config=self._net.config)  # a forward pass appends to its cache
            for place, layer in enumerate(cache.layers):
                own.update(layer.keys[rows], layer.values[rows], place)
            tails = [encoded[index].input_ids[encoded[index].prompt_length :] for index in batch]
            ids, mask = pad_sequences(tails, self._pad, self._device)
            mask = torch.cat([prompt_mask[rows], mask], dim=1)
            width = ids.shape[1]
            score_positions = [
                [
                    position - encoded[index].prompt_length
                    for position in encoded[index].score_positions
                ]
                for index in batch
            ]
            logits = self._read(
                score_positions,
                input_ids=ids,
                attention_mask=mask,
                position_ids=(mask.cumsum(-1) - 1)[:, -width:],
                past_key_values=own,
                use_cache=True,
            )
            yield batch, logits


def gather_steps(value_BTC: Tensor, score_positions: Sequence[Sequence[int]]) -> Tensor:
    """Return the values of steps [B, K, C]; what is past a row's own steps means nothing."""
    place_BK, _ = pad_sequences(score_positions, 0, value_BTC.device)
    return value_BTC[torch.arange(len(score_positions), device=place_BK.device)[:, None], place_BK]


def _group_by_prompt(encoded: dict[int, EncodedSolution]) -> tuple[list[list[int]], list[int]]:
    """Return groups of items with one prompt, shortest prompts first, and items alone with theirs.

    Groups of like prompts come together, so that prompts are padded little too.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, each in encoded.items():
        prompt = (
            each.input_ids[: each.prompt_length]
            if len(each.input_ids) <= MAX_MASKED_ROW_TOKENS
            else ()
        )
        groups.setdefault(tuple(prompt), []).append(index)
    alone = [*groups.pop((), ()), *(group[0] for group in groups.values() if len(group) == 1)]
    shared = [group for group in groups.values() if len(group) > 1]
    return sorted(shared, key=lambda group: encoded[group[0]].prompt_length), alone
