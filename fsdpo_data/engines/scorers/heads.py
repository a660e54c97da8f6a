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

from fsdpo_data.engines import sharing
from fsdpo_data.engines.samplers.tokens import padded
from fsdpo_data.engines.scorers.encoded import NetScorer, by_length
from fsdpo_data.engines.sharing import LONGEST, N_PROMPT, N_SOLUTION
from fsdpo_data.engines.step_tokens import PROMPT, Encoded

SHARED_PROMPTS = 32  #: Prompts whose keys and values are held at a time.


class PrmScorer(NetScorer):
    """Scores with ``AutoModelForTokenClassification``; solutions of one prompt share it."""

    auto_class = "AutoModelForTokenClassification"
    expected = "a directory that `fsdpo-train prm` wrote"

    def _rewards(self, encoded: dict[int, Encoded]) -> Iterator[tuple[int, list[float]]]:
        for batch, logits in self._batches(encoded):
            for index, row in zip(batch, self._link(logits).tolist(), strict=True):
                yield index, row[: len(encoded[index].readouts)]

    def _read(self, readouts: Sequence[Sequence[int]], **inputs: Any) -> Tensor:
        """Run the model; return the logits of steps, [B, K], or [B, K, C] of C classes."""
        return at_steps(self._net(**inputs).logits, readouts)[..., 0].float()

    def _link(self, logits: Tensor) -> Tensor:
        """Return the rewards, [B, K]."""
        return logits.sigmoid()

    @cached_property
    def _share(self) -> bool:
        """Try it on two solutions of one prompt, each token of theirs a step."""
        if sharing.attention_window(self._net.config):
            return False  # keys that a window has already dropped cannot be shared
        ends = range(N_PROMPT, N_PROMPT + N_SOLUTION)
        steps = [*[PROMPT] * N_PROMPT, *range(N_SOLUTION)]
        both = [Encoded(ids, steps, list(ends), N_SOLUTION) for ids in sharing.probe_ids(self._net)]
        return sharing.gives_the_same(
            self._net,
            lambda: self._logits(both),
            lambda: torch.cat([rows for _, rows in self._shared([[0, 1]], dict(enumerate(both)))]),
        )

    def _batches(self, encoded: dict[int, Encoded]) -> Iterator[tuple[list[int], Tensor]]:
        """Yield the items of each batch and the logits of their steps [B, K]."""
        shared, alone = _by_prompt(encoded) if self._share else ([], list(encoded))
        for start in range(0, len(shared), SHARED_PROMPTS):
            groups = shared[start : start + SHARED_PROMPTS]
            yield from self._shared(groups, encoded)
        lengths = {index: len(encoded[index].ids) for index in alone}
        for batch in by_length(lengths, self._batch_tokens):
            yield batch, self._logits([encoded[index] for index in batch])

    def _logits(self, batch: Sequence[Encoded]) -> Tensor:
        """Run whole sequences, padded on the right."""
        ids, mask = padded([each.ids for each in batch], self._pad, self._device)
        readouts = [each.readouts for each in batch]
        return self._read(readouts, input_ids=ids, attention_mask=mask, use_cache=False)

    def _shared(
        self, groups: Sequence[Sequence[int]], encoded: dict[int, Encoded]
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Run each prompt once, then its solutions from its keys and values."""
        firsts = [encoded[group[0]] for group in groups]
        prompts = [each.ids[: each.n_prompt] for each in firsts]
        ids, prompt_mask = padded(prompts, self._pad, self._device, left=True)
        positions = (prompt_mask.cumsum(-1) - 1).clamp_min(0)
        cache = self._net.base_model(
            input_ids=ids, attention_mask=prompt_mask, position_ids=positions, use_cache=True
        ).past_key_values
        row_of = {index: row for row, group in enumerate(groups) for index in group}
        lengths = {index: len(encoded[index].ids) - encoded[index].n_prompt for index in row_of}
        for batch in by_length(lengths, self._batch_tokens):
            rows = torch.tensor([row_of[index] for index in batch], device=self._device)
            own = DynamicCache(config=self._net.config)  # a forward pass appends to its cache
            for place, layer in enumerate(cache.layers):
                own.update(layer.keys[rows], layer.values[rows], place)
            tails = [encoded[index].ids[encoded[index].n_prompt :] for index in batch]
            ids, mask = padded(tails, self._pad, self._device)
            mask = torch.cat([prompt_mask[rows], mask], dim=1)
            width = ids.shape[1]
            readouts = [
                [position - encoded[index].n_prompt for position in encoded[index].readouts]
                for index in batch
            ]
            logits = self._read(
                readouts,
                input_ids=ids,
                attention_mask=mask,
                position_ids=(mask.cumsum(-1) - 1)[:, -width:],
                past_key_values=own,
                use_cache=True,
            )
            yield batch, logits


def at_steps(value_BTC: Tensor, readouts: Sequence[Sequence[int]]) -> Tensor:
    """Return the values of steps [B, K, C]; what is past a row's own steps means nothing."""
    place_BK, _ = padded(readouts, 0, value_BTC.device)
    return value_BTC[torch.arange(len(readouts), device=place_BK.device)[:, None], place_BK]


def _by_prompt(encoded: dict[int, Encoded]) -> tuple[list[list[int]], list[int]]:
    """Return groups of items with one prompt, shortest prompts first, and items alone with theirs.

    Groups of like prompts come together, so that prompts are padded little too.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, each in encoded.items():
        prompt = each.ids[: each.n_prompt] if len(each.ids) <= LONGEST else ()
        groups.setdefault(tuple(prompt), []).append(index)
    alone = [*groups.pop((), ()), *(group[0] for group in groups.values() if len(group) == 1)]
    shared = [group for group in groups.values() if len(group) > 1]
    return sorted(shared, key=lambda group: encoded[group[0]].n_prompt), alone
