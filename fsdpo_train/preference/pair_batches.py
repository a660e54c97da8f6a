"""Optimizer steps with a minimum number of pairs, made of whole prompts."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from fsdpo_train.config import DpoConfig
from fsdpo_train.preference.data import PairRow
from fsdpo_train.trainer.batching import grouped_order


def pair_batches(rows: Sequence[PairRow], min_pairs: int, seed: int) -> list[list[int]]:
    """Return the row indices of each optimizer step.

    The prompts come in random order. A step takes prompts until it has at least ``min_pairs``
    pairs, and the last step takes the rest. The steps depend on the data and the seed only, so any
    number of processes trains the same steps.

    Args:
        rows: One row per prompt.
        min_pairs: Minimum number of pairs in a step.
        seed: Seed of the run.
    """
    # Epochs count from 0, so no epoch has this order.
    order = grouped_order([0] * len(rows), 1, seed=seed, epoch=-1, group_by_length=False)
    batches: list[list[int]] = []
    n_pairs = min_pairs
    for row_index in order:
        if n_pairs >= min_pairs:
            batches.append([])
            n_pairs = 0
        batches[-1].append(row_index)
        n_pairs += len(rows[row_index].pairs)
    return batches


def count_micro_batches(
    batches: Sequence[Sequence[int]], config: DpoConfig, world_size: int
) -> int:
    """Return the micro-batches per process that the step with the most prompts needs."""
    return math.ceil(max(map(len, batches)) / (config.batch_size * world_size))


class PairBatchSampler(torch.utils.data.Sampler):  # type: ignore[misc]
    """Sampler of the steps of :func:`pair_batches`, in a random order of their own in each epoch.

    Every step has the same number of micro-batches on every process. Padding fills those that a
    step does not need.

    Args:
        rows: One row per prompt, and a padding row at the end.
        config: The options of the run.
        world_size: Number of processes.
    """

    def __init__(self, rows: Sequence[PairRow], config: DpoConfig, world_size: int) -> None:
        *prompts, _ = rows
        self.rows = prompts
        self.config = config
        self.world_size = world_size
        self.batches = pair_batches(prompts, config.batch_pairs, config.seed)
        self.micro_batches = count_micro_batches(self.batches, config, world_size)
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Select the order of an epoch."""
        self.epoch = epoch

    @property
    def rows_per_step(self) -> int:
        """Number of rows of a step over all processes, padding included."""
        return self.config.batch_size * self.world_size * self.micro_batches

    def __len__(self) -> int:
        return len(self.batches) * self.rows_per_step

    def __iter__(self) -> Iterator[int]:
        batch_order = grouped_order(
            [0] * len(self.batches),
            1,
            seed=self.config.seed,
            epoch=self.epoch,
            group_by_length=False,
        )
        for batch_index in batch_order:
            yield from self._padded_step(self.batches[batch_index])

    def _padded_step(self, batch: list[int]) -> list[int]:
        """Return the rows of a step, one micro-batch after the other, with padding.

        Accelerate gives consecutive micro-batches to consecutive processes.
        """
        if self.config.group_by_length:
            batch = sorted(batch, key=lambda row_index: self.rows[row_index].length)
        batch_size = self.config.batch_size
        rounds = math.ceil(len(batch) / (batch_size * self.world_size))
        padding_index = len(self.rows)
        step: list[int] = []
        for micro_batch in np.array_split(batch, rounds * self.world_size):
            step += [*micro_batch.tolist(), *[padding_index] * (batch_size - len(micro_batch))]
        return step + [padding_index] * (self.rows_per_step - len(step))
