"""Rows in batches: their order, their padding, and what fills up the last."""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fsdpo_data.engines.sharing import LONGEST

#: Length groups are sorted inside pools of this many batches: little padding, much disorder.
_POOL = 50


def grouped_order(
    lengths: Sequence[int], batch_size: int, seed: int, epoch: int, group: bool = True
) -> Iterator[int]:
    """Yield row numbers so that batches hold rows of like length and still come in random order.

    A function of (seed, epoch) alone, so that a resumed run sees the order of an unbroken one.
    """
    rng = random.Random(f"{seed}/{epoch}")
    order = list(range(len(lengths)))
    rng.shuffle(order)
    if not group:
        yield from order
        return
    for start in range(0, len(order), batch_size * _POOL):
        pool = sorted(order[start : start + batch_size * _POOL], key=lambda i: lengths[i])
        batches = [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
        # A short last batch must stay last, or every later batch would straddle two groups.
        tail = batches.pop() if len(batches[-1]) < batch_size else []
        rng.shuffle(batches)
        for batch in [*batches, tail]:
            yield from batch


def filled(
    rows: Sequence[Mapping[str, Any]], arguments: Any, **without_loss: Any
) -> Sequence[Mapping[str, Any]]:
    """Add rows without loss until every process gets batches of the same size.

    Left to itself, accelerate would fill up with rows from the beginning, which then count twice.

    ``without_loss`` is what makes a row one that adds nothing to a loss.
    """
    processes = arguments.world_size
    short = -len(rows) % (processes * arguments.per_device_train_batch_size)
    if processes == 1 or not short:
        return rows
    return [*rows, *[{**rows[0], **without_loss, "length": 0}] * short]


def padded(rows: Sequence[Any], fill: float) -> Tensor:
    """Return rows of numbers as one tensor, padded on the right; int64 if ``fill`` is whole."""
    dtype = torch.int64 if isinstance(fill, int) else torch.float32
    tensors = [torch.as_tensor(row, dtype=dtype) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=fill)


def token_batch(rows: Sequence[Mapping[str, Any]], pad: int) -> dict[str, Tensor]:
    """Return ``input_ids`` and ``attention_mask`` of rows, [B, T], padded on the right."""
    ids = [row["input_ids"] for row in rows]
    return {"input_ids": padded(ids, pad), "attention_mask": row_mask(ids)}


def row_mask(rows: Sequence[Sequence[int]]) -> Tensor:
    """Return the attention mask, [B, T], of rows padded on the right.

    Nothing sees what comes behind it, so of long rows nothing is masked: of a padded one
    transformers would write out [T, T].
    """
    return padded([[1] * len(each) for each in rows], int(max(map(len, rows)) > LONGEST))
