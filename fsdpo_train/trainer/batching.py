"""The order in which rows are batched."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

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
