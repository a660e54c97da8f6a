"""Scoring with a process reward model through transformers: one forward per solution.

Solutions are batched by length, so that little is padding, and the prompt of a problem is computed
once for all its solutions: their forward passes start from its keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.scorers import SteppedText
from fsdpo_data.engines.sharing import (
    N_PROMPT,
    N_SOLUTION,
    attention_window,
    gives_the_same,
    probe_ids,
)
from fsdpo_data.engines.step_tokens import PROMPT, Encoded, StepTokenizer
from fsdpo_data.models.checkpoints import context_length, load_checkpoint, pick_device
from fsdpo_data.models.resolve import Weights

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: Prompts whose keys and values are held at a time.
SHARED_PROMPTS = 32


class PrmScorer:
    """Scores with ``AutoModelForTokenClassification``.

    Args:
        weights: The model.
        options: Device, precision and size of batches.
        share_prompts: Whether solutions of one prompt share its computation.

    Raises:
        Unavailable: if torch is missing, a GPU is asked for and absent, or loading fails.
    """

    def __init__(
        self, weights: Weights, options: ScorerOptions, *, share_prompts: bool = True
    ) -> None:
        self.model = weights.ref
        self._device = pick_device(options.device)
        self._batch_tokens = options.batch_tokens
        tokenizer, net = load_checkpoint(
            "AutoModelForTokenClassification",
            weights,
            dtype=options.dtype,
            expected="a directory that `fsdpo-train prm` wrote",
            field="prm",
        )
        self._net = net.to(self._device).eval()
        self._encoder = StepTokenizer(tokenizer)
        self._pad: int = tokenizer.pad_token_id or 0
        self._context = context_length(self._net.config)
        # Keys that a window has already dropped cannot be shared.
        windowed = attention_window(self._net.config)
        self._share = share_prompts and not windowed and self._can_share()

    def score(self, items: Sequence[SteppedText]) -> list[list[float] | None]:
        """Score every step of every item; see :class:`fsdpo_data.engines.scorers.Scorer`."""
        import torch

        results: list[list[float] | None] = [[] if not item.steps else None for item in items]
        # Samples repeat each other; the same text is run once, and gets the same rewards.
        copies: dict[tuple[str, ...], list[int]] = {}
        for index, item in enumerate(items):
            if item.steps:
                copies.setdefault((item.prompt, *item.steps), []).append(index)
        encoded: dict[int, Encoded] = {}
        for first, *_ in copies.values():
            item = items[first]
            found = self._encoder.encode(
                item.prompt, item.steps, end=False, max_length=self._context
            )
            if not found.lost:
                encoded[first] = found
        with torch.inference_mode():
            for batch, logits in self._batches(encoded, items):
                for index, row in zip(batch, logits.sigmoid().tolist(), strict=True):
                    results[index] = row[: len(encoded[index].readouts)]
        for first, *others in copies.values():
            for index in others:
                results[index] = copy(results[first])
        return results

    def _can_share(self) -> bool:
        """Try it on two solutions of one prompt, each token of theirs a step."""
        import torch

        ends = range(N_PROMPT, N_PROMPT + N_SOLUTION)
        steps = [*[PROMPT] * N_PROMPT, *range(N_SOLUTION)]
        both = [Encoded(ids, steps, list(ends), N_SOLUTION) for ids in probe_ids(self._net)]
        return gives_the_same(
            self._net,
            lambda: self._logits(both),
            lambda: torch.cat([rows for _, rows in self._shared([[0, 1]], dict(enumerate(both)))]),
        )

    def _batches(
        self, encoded: dict[int, Encoded], items: Sequence[SteppedText]
    ) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Yield the items of each batch and the logits of their steps [B, K]."""
        shared, alone = _by_prompt(encoded, items) if self._share else ([], list(encoded))
        for start in range(0, len(shared), SHARED_PROMPTS):
            groups = shared[start : start + SHARED_PROMPTS]
            yield from self._shared(groups, encoded)
        lengths = {index: len(encoded[index].ids) for index in alone}
        for batch in by_length(lengths, self._batch_tokens):
            yield batch, self._logits([encoded[index] for index in batch])

    def _logits(self, batch: Sequence[Encoded]) -> torch.Tensor:
        """Run whole sequences, padded on the right."""
        ids, mask = padded([each.ids for each in batch], self._pad, self._device)
        logits = self._net(input_ids=ids, attention_mask=mask, use_cache=False).logits
        return _at_steps(logits, [each.readouts for each in batch])

    def _shared(
        self, groups: Sequence[Sequence[int]], encoded: dict[int, Encoded]
    ) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Run each prompt once, then its solutions from its keys and values."""
        import torch

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
            tails = [encoded[index].ids[encoded[index].n_prompt :] for index in batch]
            ids, mask = padded(tails, self._pad, self._device)
            mask = torch.cat([prompt_mask[rows], mask], dim=1)
            width = ids.shape[1]
            logits = self._net(
                input_ids=ids,
                attention_mask=mask,
                position_ids=(mask.cumsum(-1) - 1)[:, -width:],
                past_key_values=self._selected(cache, rows),
                use_cache=True,
            ).logits
            readouts = [
                [position - encoded[index].n_prompt for position in encoded[index].readouts]
                for index in batch
            ]
            yield batch, _at_steps(logits, readouts)

    def _selected(self, cache: Any, rows: torch.Tensor) -> Any:
        """Return a new cache that holds the given rows; a forward pass appends to its own."""
        from transformers import DynamicCache

        selected = DynamicCache(config=self._net.config)
        for index, layer in enumerate(cache.layers):
            selected.update(layer.keys[rows], layer.values[rows], index)
        return selected


def _at_steps(logits: torch.Tensor, readouts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return the logits of steps [B, K], float32; what is past a row's own steps means nothing."""
    import torch

    width = max(map(len, readouts))
    filled = [[*each, *[0] * (width - len(each))] for each in readouts]
    return at_readouts(logits.float(), torch.tensor(filled, device=logits.device))


def _by_prompt(
    encoded: dict[int, Encoded], items: Sequence[SteppedText]
) -> tuple[list[list[int]], list[int]]:
    """Return groups of items with one prompt, shortest prompts first, and items alone with theirs.

    Groups of like prompts come together, so that prompts are padded little too.
    """
    groups: dict[str, list[int]] = {}
    for index in encoded:
        groups.setdefault(items[index].prompt, []).append(index)
    shared = [group for group in groups.values() if len(group) > 1]
    shared.sort(key=lambda group: encoded[group[0]].n_prompt)
    return shared, [group[0] for group in groups.values() if len(group) == 1]


def by_length(lengths: dict[int, int], batch_tokens: int) -> Iterator[list[int]]:
    """Cut items into batches of like length, longest first, each within a budget of tokens.

    Args:
        lengths: Tokens of each item.
        batch_tokens: Items times the longest of them; an item above it is a batch of its own.
    """
    batch: list[int] = []
    for index in sorted(lengths, key=lambda index: -lengths[index]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def padded(
    sequences: Sequence[Sequence[int]], pad: int, device: str, *, left: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and attention mask, both [B, T], of sequences padded with ``pad``."""
    import torch

    width = max(map(len, sequences))
    ids = torch.full((len(sequences), width), pad)
    mask = torch.zeros_like(ids)
    for row, each in enumerate(sequences):
        place = slice(width - len(each), width) if left else slice(len(each))
        ids[row, place] = torch.tensor(each)
        mask[row, place] = 1
    return ids.to(device), mask.to(device)


def at_readouts(value_BT: Tensor, readout_BK: Tensor) -> Tensor:
    """Return the values at the readout token of every step, shape [B, K].

    Args:
        value_BT: One value per token, or [B, T, 1] as a head of one logit gives them.
        readout_BK: Position of each step's readout; 0 where there is no step.
    """
    return value_BT.flatten(1).gather(1, readout_BK)
